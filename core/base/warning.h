// What is no error but probably not meant. A warning is one line, said once.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace heed {

/// Takes the text of a warning, without a line end. May be called by any thread.
using WarningHandler = void (*)(const std::string& text);

/// Where warnings go from now on; null: to standard error as `heed: warning: …` with control
/// characters as \xNN, which is also the default.
/// Returns the handler before.
WarningHandler set_warning_handler(WarningHandler handler);

/// A cause of warnings, an object of static duration. warn() says the text unless its cause has been warned
/// of before; count() is how often it has come up.
class WarningCause {
 public:
  void warn(const std::string& text);
  int64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> count_{0};
};

}  // namespace heed
