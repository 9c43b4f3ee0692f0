// Adapters and their model as one.
#include <heed/nn/pretrained/lora_files.h>

#include "apps/lm/commands.h"

namespace heed::apps {

nn::TextGenerator load_merged(const std::filesystem::path& adapters, const std::filesystem::path& base) {
  const std::string from = base.empty() ? nn::lora_base(adapters.string()) : base.string();
  HEED_CHECK(std::filesystem::exists(from), ConfigError, "the adapters in ", adapters.string(),
             " are of the model in ", from, ", which is not there");
  nn::TextGenerator generator = nn::load_text_generator(from);
  nn::load_lora(generator.model(), adapters.string())->merge();
  return generator;
}

void merge(const MergeSettings& s) {
  HEED_CHECK(!s.model.empty() && !s.out.empty(), ConfigError,
             "merge needs adapters and a folder for the model: give them with --model and --out");
  HEED_CHECK(nn::is_lora_folder(s.model.string()), ConfigError, s.model.string(),
             " holds no adapters: adapter_config.json is missing");
  HEED_CHECK(!std::filesystem::exists(s.out / "model.safetensors"), ConfigError, s.out.string(),
             " holds a model already");
  apply(s);
  nn::save_text_generator(load_merged(s.model, s.base), s.out.string());
}

}  // namespace heed::apps
