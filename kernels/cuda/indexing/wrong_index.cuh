// How kernels check the indices they are given: nothing waits for the outcome, and the first wrong index is
// kept in the device's memory until the host next waits for the device or for a captured step.
#pragma once

#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/wrong_index.h>

namespace heed::cuda {

/// Checks the indices of one launch.
class IndexGuard {
 public:
  /// Of a launch that follows, on the current device.
  IndexGuard(kernels::IndexUse use, int64_t entries);

  /// Whether `index` is in [0, entries). One that is not may neither be read nor written through; it is kept
  /// for the host unless another was before.
  __device__ __forceinline__ bool holds(int64_t index, int64_t place) const {
    if (static_cast<uint64_t>(index) < static_cast<uint64_t>(entries_)) return true;
    if (atomicCAS(reinterpret_cast<int32_t*>(&first_->use), 0, static_cast<int32_t>(use_)) == 0) {
      first_->value = index;
      first_->place = place;
      first_->entries = entries_;
    }
    return false;
  }

 private:
  kernels::WrongIndex* first_;
  int64_t entries_;
  kernels::IndexUse use_;
};

}  // namespace heed::cuda
