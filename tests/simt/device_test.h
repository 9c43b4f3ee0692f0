// What tests of the CUDA runtime share.
#pragma once

#include <string>

#include <heed/kernels/runtime.h>

namespace heed::testing {

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
