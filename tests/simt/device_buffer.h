// Device memory of exactly the size a test needs, so that a kernel which steps outside is noticed.
#pragma once

#include <cstring>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

namespace heed::testing {

template <class T>
class DeviceBuffer {
 public:
  /// `count` elements that hold NaN; none gives a null pointer.
  explicit DeviceBuffer(size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), cudaSuccess);
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) { set(values); }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return data_; }
  size_t size() const { return count_; }

  void set(const std::vector<T>& values) {
    ASSERT_EQ(values.size(), count_);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }

  std::vector<T> get() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

/// The bytes of `values`, to compare results bit by bit.
template <class T>
std::vector<unsigned char> bytes_of(const std::vector<T>& values) {
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace heed::testing
