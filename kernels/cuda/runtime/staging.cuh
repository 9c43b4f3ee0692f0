// Pinned memory by way of which small copies between host and device go. Private to runtime.cu.
#pragma once

#include <cstring>
#include <mutex>

#include <heed/kernels/cuda/device.cuh>

namespace heed::cuda {

/// Never destroyed.
class Staging {
 public:
  static constexpr size_t kMax = size_t{64} << 10;  // bytes of a copy

  Staging() {
    void* pointer = nullptr;
    check(cudaHostAlloc(&pointer, (kSlots + 1) * kMax, cudaHostAllocPortable | cudaHostAllocMapped),
          "staging");
    memory_ = static_cast<std::byte*>(pointer);
    for (cudaEvent_t& event : free_)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "staging");
  }

  /// Returns when `host` has been read; the copy may still be under way.
  void upload(cudaStream_t stream, void* device, const void* host, size_t bytes, const char* what) {
    const std::lock_guard lock(upload_mutex_);
    const size_t slot = next_++ % kSlots;
    std::byte* const pinned = memory_ + slot * kMax;
    check(cudaEventSynchronize(free_[slot]), what);  // at once if it was never recorded
    std::memcpy(pinned, host, bytes);
    check(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream), what);
    check(cudaEventRecord(free_[slot], stream), what);
  }

  /// kMax bytes that the device writes and the host reads while it holds the mutex.
  std::byte* answer() const { return memory_ + kSlots * kMax; }
  std::mutex answer_mutex;

 private:
  static constexpr size_t kSlots = 8;

  std::byte* memory_;
  cudaEvent_t free_[kSlots];
  std::mutex upload_mutex_;
  size_t next_ = 0;
};

}  // namespace heed::cuda
