#include "apps/common/training_console.h"

#include <cstdio>
#include <utility>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/version.h>

namespace heed::apps {

void TrainingConsole::begin(Device device, int64_t seed, std::string_view more) const {
  const int threads = thread_count();
  line("heed ", HEED_VERSION, ": ", device, ", ", threads, threads == 1 ? " thread" : " threads", ", seed ",
       seed, more);
}

void TrainingConsole::write_line(const std::string& text) const {
  std::FILE* const file = json_ ? stderr : stdout;
  std::fprintf(file, "%s\n", text.c_str());
  std::fflush(file);
}

Progress& TrainingConsole::progress(std::string label, int64_t total, std::string unit) {
  if (!progress_) progress_.emplace(std::move(label), total, std::move(unit));
  return *progress_;
}

void TrainingConsole::step(const train::StepReport& report, int64_t total, std::string unit) {
  Progress& epoch = progress(concat("epoch ", report.epoch), total, std::move(unit));
  epoch.note(concat("loss ", fixed_text(report.loss, 4)));
  epoch.advance(report.samples);
}

void TrainingConsole::stopped(int64_t step) {
  end_progress();
  line("stopped at step ", step, "; go on with --resume");
}

}  // namespace heed::apps
