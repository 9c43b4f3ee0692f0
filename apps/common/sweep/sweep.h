// Many trainings of one program: options over values and seeds, several at once, resumable at any point.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/json_lines.h"
#include "apps/common/options/options.h"

namespace heed::apps {

/// An option, without its dashes, and the values that it takes.
struct Variation {
  std::string option;
  std::vector<std::string> values;
};

/// "heads=1,2,4 lr=1e-3,1e-4" → {heads: 1, 2, 4}, {lr: 1e-3, 1e-4}. ConfigError for what is not of that form
/// and for an option or a value that comes twice.
std::vector<Variation> parse_variations(std::string_view text);

/// One training of a sweep.
struct SweepRun {
  std::vector<std::string> values;  ///< of each variation
  int64_t seed = 0;
  std::vector<std::string> arguments;  ///< of the program's `train`, without --out and --seed
  int64_t epochs = 1;           ///< about how much work it is: the lines that its metrics.jsonl will have
  double samples_per_step = 0;  ///< 0: not known, and then the rows have no step_ms
  Json known = Json::object();  ///< numbers known before it runs: {"parameters": 1396756}
};

struct SweepOptions {
  std::filesystem::path folder;
  std::vector<Variation> variations;
  std::vector<std::string> base;  ///< what all runs have in common: a sweep is resumed with the same alone
  int64_t jobs = 1;               ///< trainings at once
  bool resume = false, force = false;
};

/// All combinations of the variations' values, the last changing fastest; one empty one for none.
std::vector<std::vector<std::string>> combinations(const std::vector<Variation>& variations);

/// The options of a table that were given, as arguments ("--heads=4") but for those named in `without`.
std::vector<std::string> given_arguments(const OptionTable& table, const std::vector<std::string>& without);

/// Runs `PROGRAM train …` of this program for each run, in FOLDER/NAME with its output in FOLDER/NAME.log,
/// and returns the rows, in the runs' order: {"name", option: value, …, "seed", known numbers, "step_ms",
/// "peak_mib", "seconds", and the numbers of the last line that training wrote}. Each row is a line of
/// FOLDER/sweep.jsonl from the moment when it is known: a sweep that is resumed has only the others to run,
/// and goes on with those that were stopped from their checkpoints. A training that ends with
/// ExitCode::numeric is a row with "failed", the error's text.
/// What a training does to the environment's HEED_… variables is undone: its arguments say everything.
/// ConfigError for a folder that holds a sweep already, unless told to resume or replace it, or one of other
/// base options; what a training failed with; Stopped.
std::vector<Json> run_sweep(const std::vector<SweepRun>& runs, const SweepOptions& options);

}  // namespace heed::apps
