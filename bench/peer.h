// What the programs that are timed beside those of other frameworks (bench/peers) have in common.
#pragma once

#include <functional>
#include <string>

#include <heed/nn/models/transformer.h>

#include "apps/common/json_lines.h"
#include "apps/common/options/options.h"
#include "bench/symbols.h"

namespace heed::bench {

/// Sizes of the sequence-to-sequence Transformer; by default the tutorial's.
struct ModelSettings {
  int64_t d_model = 128, heads = 8, encoder_layers = 3, decoder_layers = 3, d_ff = 512, vocab = 20;
  double dropout = 0.1;
  int64_t threads = 2;
  std::string weights;  // a file to write the first weights to; none if empty

  nn::TransformerConfig config() const;
};

void declare_model(apps::OptionTable& table, ModelSettings& settings);

/// Memory of this process that is resident, measured as bench/peers/peer.py does.
class ResidentMemory {
 public:
  /// Takes what is resident now for nothing.
  ResidentMemory() : before_(read("VmRSS")) {}
  /// The most that has been resident since the process began, less that, in MiB.
  double peak() const { return read("VmHWM") - before_; }

 private:
  static double read(const char* key);
  double before_;
};

/// What a program does when it is asked: its work, named if there are several kinds of it, and what that
/// results in, for comparison.
struct Turns {
  std::function<void(const std::string& what)> run;
  std::function<apps::Json(const std::string& what)> values;  // may be empty
};

/// Prints `about`, by which the driver checks that all do the same work. Then for each line "run N" or "run N
/// WHAT" on standard input does the work N times and prints {"milliseconds": […]}, so that the driver can let
/// programs take turns; for "values WHAT" it prints {"values": …}.
void take_turns(const apps::Json& about, const Turns& turns);
/// The same with one kind of work.
void take_turns(const apps::Json& about, const std::function<void()>& work);

}  // namespace heed::bench
