// The second half of a sum over rows: blocks leave one partial sum per column each, which are added in fixed
// order.
#pragma once

#include <cstdint>

namespace heed::cuda {

struct PartialSums {
  const float* partials;  // [count, cols]
  float* out;             // [cols]; null: skipped
  bool accumulate;        // add to what `out` holds
};

/// out (+)= the sum over the first axis of partials, for both of `sums`. Rounds the same way in every run.
void add_partials(const char* what, const PartialSums (&sums)[2], int64_t count, int64_t cols);

}  // namespace heed::cuda
