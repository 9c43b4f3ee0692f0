// What tests of the CUDA runtime share.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include <heed/core/base/dtype.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/simt/host/emulator.h>

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

/// Whether every access is checked, by the race checker or AddressSanitizer. One schedule is enough for that,
/// and takes long; whether results depend on the schedule is for builds without.
inline bool checks_accesses() { return emulator::checks_addresses() || emulator::checks_races(); }

/// Calls run(name) under every schedule, or the first alone where accesses are checked.
inline void each_schedule(const std::function<void(const std::string&)>& run) {
  if (checks_accesses()) return run("the only schedule");
  emulator::each_schedule(run);
}

}  // namespace heed::testing
