// What tests of the CUDA runtime share.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include <heed/core/base/dtype.h>
#include <heed/kernels/runtime.h>

#include "../support/tally.h"

namespace heed::testing {

using KernelTypes = ::testing::Types<float, bfloat16>;

/// Counts kernel operations, each with one shape, set of options and dtype, that were compared with loops in
/// double or run under every schedule. Other alignments of the same operands are no cases of their own.
inline test::Tally kernel_cases{"kernel_cases"};

/// The text of the E that f throws.
template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing thrown";
}

/// Whether the device is the emulated one.
inline bool emulated() { return cuda::device_name(0).rfind("emulated", 0) == 0; }

}  // namespace heed::testing
