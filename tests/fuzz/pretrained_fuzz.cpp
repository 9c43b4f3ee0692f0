// Any bytes as config.json of each family, as a GGUF file of a Llama and as an index of files: a typed error,
// or settings that a model can have, the weights of one, and names of files beside the index.
#include <memory>
#include <string>

#include <heed/nn/parameter.h>
#include <heed/nn/pretrained/detail/families.h>

#include "fuzz.h"
#include "memory_file.h"

using heed::fuzz::require;
namespace detail = heed::nn::detail;

namespace {

/// Settings that were read are written, if the family has them all, and read again.
template <class Config, class Read, class Write>
void check(const Config& config, Read read, Write write) {
  require(config.heads > 0 && config.d_model > 0);
  const detail::Json json = write(config);
  const detail::Settings again(detail::parse_json_object(json.dump(), "again"), "again");
  require(write(read(again)) == json);
}

template <class Read, class Write>
void read_settings(const detail::Settings& settings, Read read, Write write) {
  try {
    check(read(settings), read, write);
  } catch (const heed::ConfigError&) {
  }
}

heed::nn::LanguageModelConfig read_llama(const detail::Settings& settings) {
  return detail::read_llama(settings);
}

void read_json(std::string_view text) {
  try {
    const detail::Settings settings(detail::parse_json_object(text, "input"), "input");
    read_settings(settings, detail::read_bert, detail::write_bert);
    read_settings(settings, detail::read_roberta, detail::write_bert);
    read_settings(settings, detail::read_gpt2, detail::write_gpt2);
    read_settings(settings, read_llama, detail::write_llama);
    read_settings(settings, detail::read_marian, detail::write_marian);
  } catch (const heed::CheckpointError&) {
    return;  // no index either
  }
  try {
    for (const auto& file : detail::parse_index(text, "input"))
      require(!file.second.empty() && file.first.find('/') == std::string::npos && file.first[0] != '.');
  } catch (const heed::CheckpointError&) {
  }
}

/// As load_pretrained does: names and shapes are compared before the model has memory.
void load(const heed::nn::LanguageModelConfig& config, const detail::WeightFiles& files) {
  const detail::NameQuery query{.table = detail::kLlamaGgufNames, .layout = config.layout()};
  {
    const heed::nn::ShapesOnly shapes_only;
    heed::nn::LanguageModel shapes(config);
    detail::check_named(shapes, files, query);
  }
  heed::nn::LanguageModel model(config);
  detail::load_named(model, files, query, false);
}

void read_gguf(const std::string& path) {
  try {
    const auto file = std::make_shared<const heed::GgufReader>(path);
    const heed::nn::LanguageModelConfig config = detail::read_llama(*file);
    constexpr int64_t kMax = 4;
    if (config.layers <= kMax) load(config, detail::open_gguf(file));  // others are as these
    check(config, read_llama, detail::write_llama);
  } catch (const heed::CheckpointError&) {
  } catch (const heed::ConfigError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with("GGUF"))  // which begins no JSON
    read_gguf(heed::fuzz::memory_file(data, size));
  else
    read_json(bytes);
  return 0;
}
