// The commands of embed. Each throws on error; run_program turns that into an exit code.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <heed/nn/text/sentence_encoder.h>

#include "apps/common/common_settings.h"

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

struct InfoSettings : ModelSettings {};

void encode(const EncodeSettings& settings);
void compare(const CompareSettings& settings);
void search(const SearchSettings& settings);
void info(const InfoSettings& settings);

nn::SentenceEncoder open_encoder(const ModelSettings& settings);

/// The lines of a file, or of standard input without one, without their ends. DataError for a file that
/// cannot be read, or a line of more than 1 MiB.
std::vector<std::string> read_lines(const std::filesystem::path& file);

}  // namespace heed::apps
