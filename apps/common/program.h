// The frame around main(): exceptions become one line and an exit code, signals become a flag.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <heed/core/base/check.h>

namespace heed::apps {

/// What a program's exit code says. A signal that stopped it gives 128 + its number: 129, 130 or 143.
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
/// type and causes. While it runs, the first SIGINT, SIGTERM or SIGHUP only sets stop_requested(), and
/// another SIGINT or SIGTERM ends the process at once (a terminal that closes sends SIGHUP more than once;
/// nohup has it ignored). An error that follows a signal gives its own code: nothing may look saved that was
/// not. A reader that has gone away, and a file beyond the limit on sizes, are errors of the write, not
/// signals.
int run_program(int argc, char** argv, const std::function<void(const std::vector<std::string>&)>& f);

/// Whether SIGINT, SIGTERM or SIGHUP has come. Long work polls this, saves what it must and returns;
/// run_program then exits with 130, 143 or 129.
bool stop_requested();

/// No error: the way out of work that has nothing to save.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped by a signal"; }
};

/// Throws Stopped if stop_requested().
void throw_if_stopped();

}  // namespace heed::apps
