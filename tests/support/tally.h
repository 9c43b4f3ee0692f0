// How many checks of a kind a test program made.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

namespace heed::test {

/// Counted up by the checks; at its end the program leaves the count for tests/support/check_count.cmake,
/// which adds up all programs' counts of this kind.
struct Tally {
  const char* kind;
  int count = 0;

  ~Tally() {
    const char* folder = std::getenv("HEED_CHECK_COUNTS");
    if (folder)
      std::ofstream(std::string(folder) + "/" + program_invocation_short_name + "." + kind) << count;
  }
};

}  // namespace heed::test
