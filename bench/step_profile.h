// Where the time of a step goes, and how much of it has to.
#pragma once

#include <functional>

#include <heed/core/base/dtype.h>

#include "apps/common/options/options.h"

namespace heed::bench {

/// The option --profile: print_profile() instead of take_turns().
void declare_profile(apps::OptionTable& options, bool& profile);

/// Runs `step` for a second, three times at least, and prints a line for each kernel that it calls: calls,
/// milliseconds and their share of the step, GFLOP/s, GB/s, and its floor. The floor of a call is the longer
/// of two times: of its operations at the rate of a product of 1024 x 1024 x 1024 of `dtype`, and of the
/// bytes that it has to move at the rate of a copy that moves as many, both measured right after. What is not
/// in a kernel stands in a line of its own.
void print_profile(const std::function<void()>& step, DType dtype);

}  // namespace heed::bench
