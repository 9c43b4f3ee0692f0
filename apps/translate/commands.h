// The commands of translate. Each throws on error; run_program turns that into an exit code.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/common/json_server.h"
#include "apps/translate/scores.h"
#include "apps/translate/serve.h"
#include "apps/translate/settings.h"

namespace heed::apps {

/// What the commands that use a trained model share.
struct UseSettings : CommonSettings {
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
  int64_t best = 1;
};

struct ServeSettings : UseSettings, SearchSettings {
  JsonServerOptions http = {.port = 8080};
  ServeLimits limits;
  int64_t gather = 2;  // milliseconds
};

struct InfoSettings : UseSettings {
  bool tree = false;
};

/// A resumed run takes what the options leave open from its checkpoint.
void train(Settings& settings, OptionTable& table);
void evaluate_model(const EvalSettings& settings);
/// Texts from the arguments, else from --input, else from standard input, line by line and in order.
void run_model(const TextSettings& settings);
/// Serves a page and POST /api/run until a signal comes.
void serve(const ServeSettings& settings);
void info(const InfoSettings& settings);

/// evaluate_texts(), with a line of progress on standard error; a signal stops it.
TextEvaluation evaluate_with_progress(const nn::TextModel& model, const std::vector<Example>& examples,
                                      nn::TextOptions options, size_t keep_failures);

}  // namespace heed::apps
