// A program that runs beside this one.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace heed::apps {

/// A process with an empty standard input, whose outputs go to a file. It is in a process group of its own,
/// so that a terminal's Ctrl-C reaches only this program, and gets SIGTERM where this program dies.
class ChildProcess {
 public:
  struct Ended {
    int code;  ///< the exit code; 128 + the signal that killed it
    int64_t peak_bytes;
    double seconds;
  };

  /// Starts words[0], the path of a program, with the other words as its arguments, with exactly the
  /// environment given ("NAME=value"). IoError where the log cannot be made or no process be started; a
  /// program that is none ends with code 127.
  ChildProcess(const std::vector<std::string>& words, const std::vector<std::string>& environment,
               const std::filesystem::path& log);
  /// Terminates it and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// How it ended; nothing while it runs. Does not wait.
  std::optional<Ended> poll();
  /// Sends SIGTERM.
  void terminate();

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Ended> wait(int options);

  pid_t process_;
  Clock::time_point start_ = Clock::now();
  std::optional<Ended> ended_;
};

}  // namespace heed::apps
