// The frame around main(): exceptions become one line and an exit code, signals become a flag.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <heed/core/base/check.h>

namespace heed::apps {

/// What a program's exit code says. A signal that stopped it gives 128 + its number: 130 or 143.
enum class ExitCode : int {
  ok = 0,
  internal = 1,
  usage = 2,
  data = 3,
  checkpoint = 4,
  memory = 5,
  numeric = 6,
  device = 7,
  io = 8,
};

/// The code for an exception, by its type.
ExitCode exit_code(const std::exception& error);

/// Calls f with the arguments after the program's name and returns the exit code. What f throws is printed
/// to standard error as one line, `heed: error: …`; with --debug among the arguments or HEED_DEBUG=1 also its
/// type and causes. While it runs, the first SIGINT or SIGTERM only sets stop_requested() and the second one
/// ends the process at once; a reader that has gone away is an error of the write, not a signal.
int run_program(int argc, char** argv, const std::function<void(const std::vector<std::string>&)>& f);

/// Whether SIGINT or SIGTERM has come. Long work polls this, saves what it must and returns; run_program then
/// exits with 130 or 143.
bool stop_requested();

}  // namespace heed::apps
