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
    if (count == 0) return;
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), cudaSuccess);
#ifdef HEED_TEST_GPU  // the emulator does so itself, and knows that nothing was written
    EXPECT_EQ(cudaMemset(data_, 0xff, count * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
#endif
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) { set(values); }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return data_; }
  size_t size() const { return count_; }

  /// Copies values.size() elements to `first` on.
  void set(const std::vector<T>& values, size_t first = 0) {
    ASSERT_LE(first + values.size(), count_);
    copy(data_ + first, values.data(), values.size(), cudaMemcpyHostToDevice);
  }

  std::vector<T> get() const {
    std::vector<T> values(count_);
    copy(values.data(), data_, count_, cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  // Kernels run in a stream that waits for nobody, so everything before and after is waited for here.
  static void copy(T* to, const T* from, size_t count, cudaMemcpyKind kind) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(to, from, count * sizeof(T), kind), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

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
