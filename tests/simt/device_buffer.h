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
  /// `count` elements that hold NaN, `offset` elements past a 16-byte boundary; none gives a null pointer.
  explicit DeviceBuffer(size_t count, size_t offset = 0) : count_(count) {
    if (count == 0) return;
    const size_t bytes = (offset + count) * sizeof(T);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), bytes), cudaSuccess);
    data_ = memory_ + offset;
#ifdef HEED_TEST_GPU  // the emulator does so itself, and knows that nothing was written
    EXPECT_EQ(cudaMemset(memory_, 0xff, bytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
#endif
  }
  explicit DeviceBuffer(const std::vector<T>& values, size_t offset = 0)
      : DeviceBuffer(values.size(), offset) {
    set(values);
  }
  ~DeviceBuffer() { cudaFree(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return data_; }
  size_t size() const { return count_; }

  void set(const std::vector<T>& values) {
    ASSERT_LE(values.size(), count_);
    copy(data_, values.data(), values.size(), cudaMemcpyHostToDevice);
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

  T* memory_ = nullptr;
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
