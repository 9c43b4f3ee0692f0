// The commands of embed. Each throws on error; run_program turns that into an exit code.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <heed/nn/text/sentence_encoder.h>

#include "apps/common/options/common_settings.h"
#include "apps/common/options/training_settings.h"
#include "apps/common/text_server.h"
#include "apps/embed/fine_tuning.h"

namespace heed::apps {

/// What all commands share.
struct ModelSettings : CommonSettings {
  std::filesystem::path model = "runs/minilm";
  DType dtype = DType::f32;
};

struct EncodeSettings : ModelSettings {
  std::vector<std::string> texts;
  std::filesystem::path input, out;
};

struct CompareSettings : ModelSettings {
  std::vector<std::string> texts;
};

struct SearchSettings : ModelSettings {
  std::vector<std::string> words;  // the folder, then questions
  std::vector<std::string> extensions{"txt", "text", "md", "markdown", "rst", "org", "adoc", "tex", "html"};
  bool all = false;
  std::filesystem::path index;  // empty: .heed-search.safetensors in the folder
  int64_t top = 5;
};

struct ServeSettings : SearchSettings {
  JsonServerOptions http = {.port = 8080};
  TextLimits limits;
  int64_t gather = 2;  // milliseconds
  int64_t max_top = 100;
};

struct ClassifySettings : ModelSettings {
  std::vector<std::string> texts;
  std::filesystem::path input, data;
  LabelColumn label = LabelColumn::detect;
};

enum class FineTuningTask { labels, pairs };

struct TrainSettings : CommonSettings, OptimizationSettings, RunSettings {
  TrainSettings();

  std::filesystem::path model = "runs/minilm", data, test;
  FineTuningTask task = FineTuningTask::labels;
  LabelColumn label = LabelColumn::detect;
  double scale = 20;
  std::vector<std::string> freeze, rates;
};

struct InfoSettings : ModelSettings {};

void encode(const EncodeSettings& settings);
void compare(const CompareSettings& settings);
void search(const SearchSettings& settings);
/// Serves a page, POST /api/search and POST /api/encode until a signal comes.
void serve(const ServeSettings& settings);
void info(const InfoSettings& settings);
/// Labels of texts by a model that train() made; accuracy on a file that has them.
void classify(const ClassifySettings& settings);
/// All of `train`'s options.
void declare_training(OptionTable& table, TrainSettings& settings);
/// Fine-tunes an encoder. A resumed run takes what the options leave open from its checkpoint.
void train(TrainSettings& settings, OptionTable& table);

nn::SentenceEncoder open_encoder(const ModelSettings& settings);
/// ConfigError where there is no such folder.
void check_model(const std::filesystem::path& folder);

/// The lines of a file, or of standard input without one, without their ends. DataError for a file that
/// cannot be read, or a line of more than 1 MiB.
std::vector<std::string> read_lines(const std::filesystem::path& file);

}  // namespace heed::apps
