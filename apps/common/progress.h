// Progress of long work on standard error: one living line on a terminal, a plain line now and then
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace heed::apps {

/// What a progress line shows.
struct ProgressState {
  std::string label;  ///< "epoch 3/20"
  std::string unit;   ///< what is counted: "pairs"; "" shows no rate
  std::string note;   ///< anything more: "loss 1.234"
  int64_t done = 0;
  int64_t total = 0;   ///< 0: not known, so no bar and no time left
  double seconds = 0;  ///< since the start
  double rate = 0;     ///< units a second of late
};

/// The line, cut to width columns. utf8 draws the bar with block characters, else with #.
std::string progress_line(const ProgressState& state, int width, bool utf8);

/// "0:07", "3:41", "2:05:09"; "?" for what is not a time.
std::string format_duration(double seconds);

/// "950", "12.3k", "4.56M".
std::string format_count(double value);

/// Shows how far a piece of work has come. Ends its line when finished or destroyed. Nothing it does can
/// fail.
class Progress {
 public:
  /// Work of total units (0 if not known), shown on stream.
  Progress(std::string label, int64_t total, std::string unit, std::FILE* stream = stderr);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Counts units and redraws where it is time: ten times a second on a terminal, else every ten seconds.
  void advance(int64_t units = 1);
  /// The text after the rate; shown at the next drawing.
  void note(std::string text) { state_.note = std::move(text); }
  /// Nothing is shown of work that is done in less.
  void hide_below(double seconds) { hidden_below_ = seconds; }
  /// Draws now: before something long during which advance() is not called.
  void show();
  /// Draws the last state and ends the line; later calls do nothing.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(Clock::time_point now);
  bool hidden(Clock::time_point now) const;

  ProgressState state_;
  std::FILE* stream_;
  bool live_;
  bool finished_ = false, shown_ = false;
  double hidden_below_ = 0;
  Clock::time_point start_ = Clock::now(), drawn_ = start_, rate_from_ = start_;
  int64_t rate_done_ = 0;
};

}  // namespace heed::apps
