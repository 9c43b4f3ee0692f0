// Where in a kernel's source something was called: every message of the emulator says so.
#pragma once

namespace heed::emulator {

struct Location {
  const char* file = nullptr;
  int line = 0;

  /// As a default argument: the place of the call.
  static constexpr Location here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace heed::emulator
