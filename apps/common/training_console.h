// What a training says while it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <heed/core/base/check.h>
#include <heed/core/base/device.h>
#include <heed/train/trainer.h>

#include "apps/common/json_lines.h"
#include "apps/common/progress.h"

namespace heed::apps {

/// Speaks to people on standard output, or with --json to programs there and to people on standard error.
class TrainingConsole {
 public:
  explicit TrainingConsole(bool json) : json_(json) {}

  /// The first line: version, device, threads and seed, and then `more`.
  void begin(Device device, int64_t seed, std::string_view more = {}) const;
  /// For people. That nobody can read it ends no training.
  template <class... Parts>
  void line(const Parts&... parts) const {
    write_line(concat(parts...));
  }
  /// For programs. IoError where none reads it.
  void write(const Json& object) {
    if (json_) out_.write(object);
  }
  /// The object for programs, or else text() for people.
  template <class Text>
  void report(const Json& object, const Text& text) {
    write(object);
    if (!json_) line(text());
  }

  /// The progress that is shown, which begins now if there is none: of `total` units.
  Progress& progress(std::string label, int64_t total, std::string unit);
  /// Progress of an epoch of `total` samples, which are called `unit`.
  void step(const train::StepReport& report, int64_t total, std::string unit);
  /// Ends the line of progress: before anything else is shown.
  void end_progress() { progress_.reset(); }

  /// For people: that a signal ended the run after `step`.
  void stopped(int64_t step);

 private:
  void write_line(const std::string& text) const;

  bool json_;
  JsonLines out_;
  std::optional<Progress> progress_;
};

}  // namespace heed::apps
