// The gradients of many parameters as one row of blocks, which threads share evenly.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/optimizer.h>

namespace heed::cpu {

/// Each part is cut into blocks of `size` elements, the last of which may be shorter.
template <class Part>
class GradientBlocks {
 public:
  GradientBlocks(kernels::Parts<Part> parts, int64_t size)
      : parts_(parts), size_(size), first_(static_cast<int64_t>(parts.size()) + 1) {
    int64_t* first = first_.data();
    *first = 0;
    for (const Part& part : parts) {
      first[1] = *first + ceil_divide(part.count, size);
      ++first;
    }
  }

  int64_t count() const { return first_.data()[parts_.size()]; }

  /// Calls f(part, block, first, last) for each part with blocks in [begin, end): the number of the first of
  /// these, and which elements of the part they are.
  template <class F>
  void for_each_part(int64_t begin, int64_t end, const F& f) const {
    const int64_t* const first = first_.data();
    size_t i = static_cast<size_t>(std::upper_bound(first, first + parts_.size() + 1, begin) - first) - 1;
    for (int64_t block = begin; block < end; block = first[++i]) {
      const int64_t from = block - first[i], to = std::min(end, first[i + 1]) - first[i];
      if (from < to) f(parts_[i], block, from * size_, std::min(to * size_, parts_[i].count));
    }
  }

 private:
  kernels::Parts<Part> parts_;
  int64_t size_;
  Workspace<int64_t> first_;  // block of each part, and their number
};
template <class Part>
GradientBlocks(kernels::Parts<Part>, int64_t) -> GradientBlocks<Part>;

}  // namespace heed::cpu
