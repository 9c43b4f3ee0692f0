// The commands of copy_reverse. Each throws on error; run_program turns that into an exit code.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/seq2seq.h"
#include "apps/common/sweep/sweep_command.h"
#include "apps/copy_reverse/settings.h"

namespace heed::apps {

/// What the commands that use a trained model share.
struct ModelSettings : CommonSettings {
  std::filesystem::path model = "runs/copy_reverse";
  std::filesystem::path data;
};

/// Generated pairs other than those of the training's validation; unset: as there.
struct PairsSettings : ModelSettings {
  std::string task;
  std::optional<int64_t> min_length, max_length, pairs;
};

struct EvalSettings : PairsSettings {
  int64_t max_decode_length = 0;  // 0: two more than the longest target
};

struct DecodeSettings : ModelSettings {
  int64_t beam = 1;
  double length_penalty = 0;
  int64_t max_decode_length = 0;  // 0: twice the source's length and 10 more
  std::vector<std::string> sources;
};

struct BeamSettings : DecodeSettings {
  BeamSettings() { beam = 3; }
};

struct LogitsSettings : ModelSettings {
  std::filesystem::path out = "logits.safetensors";
};

struct AttentionSettings : ModelSettings {
  std::string input, target;
  std::optional<int64_t> layer, head;
  std::filesystem::path out;  // empty: the model's folder
};

struct HeadsSettings : ModelSettings {
  std::optional<int64_t> length;  // of the sources; unset: the longest of the training
  int64_t pairs = 200;
  int64_t layer = 0;          // whose heads are drawn
  std::filesystem::path out;  // empty: the model's folder
};

struct FailuresSettings : PairsSettings {
  int64_t worst = 3;
  std::filesystem::path out;  // empty: the model's folder
};

struct InfoSettings : ModelSettings {
  bool tree = false;
};

struct LengthsSettings : CommonSettings {
  std::vector<std::string> models;
  std::string lengths = "5,10,15,20,25,30,35,40";
  int64_t pairs = 200;
  std::filesystem::path out = "runs/lengths";
};

struct SweepOfTrainings : SweepSettings, Settings {};

/// A resumed run takes what the options leave open from its checkpoint.
void train(Settings& settings, OptionTable& table);
/// Trains with every combination of the values of options, with several seeds.
void sweep(const SweepOfTrainings& settings, const OptionTable& table);
void evaluate_model(const EvalSettings& settings);
/// Trained models at each of several lengths.
void compare_lengths(const LengthsSettings& settings);
void decode(const DecodeSettings& settings);
/// The search for one source's output, drawn as a tree.
void beam(const BeamSettings& settings);
void logits(const LogitsSettings& settings);
void attention(const AttentionSettings& settings);
/// What each head looks at, and what the model loses without it.
void heads(const HeadsSettings& settings);
/// Where a model goes wrong: at which places, lengths and symbols, and its worst outputs.
void failures(const FailuresSettings& settings);
void info(const InfoSettings& settings, const Settings& fresh);

/// "5,10,20". ConfigError.
std::vector<int64_t> parse_lengths(const std::string& text);

/// evaluate(), with a line of progress on standard error.
Evaluation evaluate_with_progress(nn::Seq2SeqModel& model, const data::PairDataset& dataset,
                                  EvaluationOptions options);

}  // namespace heed::apps
