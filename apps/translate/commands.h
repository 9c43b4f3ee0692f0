// The commands of translate. Each throws on error; run_program turns that into an exit code.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/serve/json_server.h"
#include "apps/common/sweep/sweep_command.h"
#include "apps/translate/scores.h"
#include "apps/translate/serve.h"
#include "apps/translate/settings.h"

namespace heed::apps {

/// What the commands that use trained models share.
struct UseSettings : CommonSettings {
  std::vector<std::string> models{"runs/translate"};  // folders; of several the ensemble is used
};

/// The model or the ensemble, on the device that is asked for. ConfigError without a folder.
nn::TextModel load_model(const UseSettings& settings);

/// What the commands for a single model share.
struct FolderSettings : CommonSettings {
  std::filesystem::path model = "runs/translate";
};

/// How outputs are found.
struct SearchSettings {
  int64_t beam = 5, max_length = 0, batch_tokens = 4096;
  double length_penalty = 0;

  nn::TextOptions options(int64_t best = 1) const;
};

enum class Part { train, valid, test, all };

struct EvalSettings : UseSettings, SearchSettings {
  std::filesystem::path data;
  Part part = Part::test;
  int64_t failures = 10;
};

struct TextSettings : UseSettings, SearchSettings {
  std::vector<std::string> texts;
  std::filesystem::path input;
  int64_t best = 1, min_length = 0;
  std::string prefix;
  std::optional<double> temperature;
  int64_t top_k = 0;
  double top_p = 1;
  bool alignment = false;

  /// Whether outputs are drawn rather than searched for.
  bool samples() const { return temperature || top_k > 0 || top_p < 1; }
  nn::TextOptions options() const;
};

struct AttentionSettings : UseSettings, SearchSettings {
  std::vector<std::string> texts;
  std::string target;
  std::filesystem::path out;
};

struct BeamSettings : UseSettings, SearchSettings {
  std::vector<std::string> texts;
};

struct ExportSettings : FolderSettings {
  std::filesystem::path out;
  DType dtype = DType::f32;
  bool force = false;
};

struct ServeSettings : UseSettings, SearchSettings {
  JsonServerOptions http = {.port = 8080};
  ServeLimits limits;
  int64_t gather = 2;  // milliseconds
};

struct PoSettings : UseSettings, SearchSettings {
  std::vector<std::string> files;
  std::filesystem::path out;
  bool in_place = false;
};

struct InfoSettings : FolderSettings {
  bool tree = false;
};

struct SweepOfTrainings : SweepSettings, Settings {};

/// A resumed run takes what the options leave open from its checkpoint.
void train(Settings& settings, OptionTable& table);
/// Trains with options varied, over several seeds.
void sweep(const SweepOfTrainings& settings, const OptionTable& table);
void evaluate_model(const EvalSettings& settings);
/// Texts from the arguments, else from --input, else from standard input, line by line and in order.
void run_model(const TextSettings& settings);
/// Draws one text's cross-attention.
void attention(const AttentionSettings& settings);
/// Draws the search for one text's output as a tree: what was kept, and the best of what was not.
void beam(const BeamSettings& settings);
/// A folder with the weights of the model, its tokenizers and settings alone.
void export_model(const ExportSettings& settings);
/// Fills what a gettext catalogue has no translations for.
void fill_catalogue(const PoSettings& settings);
/// Serves a page and POST /api/run until a signal comes.
void serve(const ServeSettings& settings);
void info(const InfoSettings& settings);

/// evaluate_texts(), with a line of progress on standard error; a signal stops it.
TextEvaluation evaluate_with_progress(const nn::TextModel& model, const std::vector<Example>& examples,
                                      nn::TextOptions options, size_t keep_failures);

}  // namespace heed::apps
