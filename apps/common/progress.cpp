#include "apps/common/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "apps/common/console.h"
#include "apps/common/text.h"

namespace heed::apps {

namespace {

constexpr int kBarWidth = 20;

std::string bar(double fraction, bool utf8) {
  // Eighths of a cell, as the block characters U+258F to U+2588 show them.
  static const char* const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int steps = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * kBarWidth * 8));
  std::string out;
  for (int cell = 0; cell < kBarWidth; ++cell) {
    const int filled = std::clamp(steps - 8 * cell, 0, 8);
    if (utf8) {
      out += filled == 8 ? "█" : eighths[filled];
    } else {
      out += filled >= 4 ? '#' : '.';
    }
  }
  return utf8 ? "▕" + out + "▏" : "[" + out + "]";
}

}  // namespace

std::string format_duration(double seconds) {
  constexpr double kLongest = 1e9;
  if (!(seconds >= 0 && seconds < kLongest)) return "?";
  const int64_t whole = std::llround(seconds);
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string format_count(double value) {
  if (!std::isfinite(value)) return "?";
  const char* suffixes[] = {"", "k", "M", "G", "T"};
  size_t power = 0;
  // 999.95 would round to 1000.0.
  while (std::abs(value) >= 999.95 && power + 1 < std::size(suffixes)) {
    value /= 1000;
    ++power;
  }
  const int decimals = power == 0 && value == std::floor(value) ? 0 : std::abs(value) < 9.995 ? 2 : 1;
  return fmt::format("{:.{}f}{}", value, decimals, suffixes[power]);
}

std::string progress_line(const ProgressState& state, int width, bool utf8) {
  std::string line = state.label;
  if (state.total > 0) {
    const double fraction = static_cast<double>(state.done) / static_cast<double>(state.total);
    line += fmt::format(" {} {:3.0f}% {}/{}", bar(fraction, utf8),
                        std::floor(100 * std::clamp(fraction, 0.0, 1.0)), state.done, state.total);
  } else {
    line += fmt::format(" {}", state.done);
  }
  if (!state.unit.empty()) line += fmt::format(" {}, {}/s", state.unit, format_count(state.rate));
  line += fmt::format(", {}", format_duration(state.seconds));
  if (state.total > state.done) {
    line += fmt::format(" < {} left", format_duration((state.total - state.done) / state.rate));
  }
  if (!state.note.empty()) line += "  " + state.note;
  return shorten(line, width);
}

Progress::Progress(std::string label, int64_t total, std::string unit, std::FILE* stream)
    : stream_(stream), live_(is_terminal(stream)) {
  state_.label = std::move(label);
  state_.total = total;
  state_.unit = std::move(unit);
}

void Progress::advance(int64_t units) {
  if (finished_) return;
  state_.done += units;
  const Clock::time_point now = Clock::now();
  const std::chrono::milliseconds pause(live_ ? 100 : 10000);
  if (now - drawn_ >= pause && (shown_ || !hidden(now))) draw(now);
}

bool Progress::hidden(Clock::time_point now) const {
  return std::chrono::duration<double>(now - start_).count() < hidden_below_;
}

void Progress::show() {
  if (!finished_) draw(Clock::now());
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  const Clock::time_point now = Clock::now();
  if (!shown_ && hidden(now)) return;
  rate_from_ = start_;  // the last line shows the rate of the whole
  rate_done_ = 0;
  draw(now);
  if (live_) std::fputc('\n', stream_);
  std::fflush(stream_);
}

void Progress::draw(Clock::time_point now) {
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  constexpr double kRateWindow = 5;
  state_.seconds = seconds(now - start_);
  const double span = seconds(now - rate_from_);
  state_.rate = span > 0 ? static_cast<double>(state_.done - rate_done_) / span : 0;
  if (span > kRateWindow) {
    rate_from_ = now;
    rate_done_ = state_.done;
  }
  drawn_ = now;
  shown_ = true;
  if (live_) {
    // One column stays free, else some terminals wrap; \x1b[K clears what a longer line left.
    const std::string line = progress_line(state_, terminal_width(stream_) - 1, has_utf8());
    std::fprintf(stream_, "\r%s\x1b[K", line.c_str());
  } else {
    std::fprintf(stream_, "%s\n", progress_line(state_, 1 << 20, false).c_str());
  }
  std::fflush(stream_);
}

}  // namespace heed::apps
