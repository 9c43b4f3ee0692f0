#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <heed/core/io/atomic_file.h>
#include <heed/nn/pretrained/detail/families.h>
#include <heed/nn/pretrained/lora_files.h>
#include <heed/nn/weights.h>

namespace heed::nn {
namespace {

namespace fs = std::filesystem;
using detail::NameRule;
using detail::Part;

constexpr uint64_t kMaxConfigBytes = 1 << 20;
constexpr int64_t kMaxRank = 1 << 16;
constexpr const char* kPrefix = "base_model.model.";  // what peft puts before a model's names

bool is_llama(const LanguageModel& model) { return model.config().position == PositionKind::rotary; }

const detail::NameTable& names_of(const LanguageModel& model) {
  return is_llama(model) ? detail::kLlamaNames : detail::kGpt2Names;
}

/// The model's handles of its parameters, by name.
class Handles : public Visitor {
 public:
  explicit Handles(Module& module) { module.visit(*this); }
  std::map<std::string, Tensor*> found;

 protected:
  void on_parameter(const std::string& name, Tensor& parameter, bool) override {
    found.emplace(name, &parameter);
  }
};

std::string filled(std::string_view pattern, int64_t number) {
  const size_t star = pattern.find('*');
  return concat(pattern.substr(0, star), number, pattern.substr(star + 1));
}

// "layers.*.self_attn.q_proj.weight" → "layers.*.self_attn.q_proj"; empty for what is no matrix of a layer.
std::string_view module_of(const NameRule& rule) {
  const std::string_view file = rule.file, parameter = rule.parameter;
  const bool matrix = parameter.starts_with("layers.*.") && file.ends_with(".weight") &&
                      parameter.find(".norm") == parameter.npos;
  return matrix ? file.substr(0, file.rfind('.')) : std::string_view();
}

std::string_view last_word(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// First row and number of rows; 0: all.
std::pair<int64_t, int64_t> rows_of(Part part, const HeadLayout& layout) {
  const int64_t q = layout.query_columns(), k = layout.key_columns();
  switch (part) {
    case Part::query:
      return {0, q};
    case Part::key:
      return {q, k};
    case Part::value:
      return {q + k, k};
    default:
      return {0, 0};
  }
}

detail::Settings settings_of(const std::string& folder) {
  return detail::read_settings(folder + "/adapter_config.json", kMaxConfigBytes);
}

std::vector<std::string> read_words(const detail::Settings& settings) {
  for (const char* other : {"rank_pattern", "alpha_pattern"})
    HEED_CHECK(settings.inner(other).empty(), ConfigError, "'", settings.file(), "': heed has no ", other);
  std::vector<std::string> words = settings.texts("target_modules");
  HEED_CHECK(!words.empty(), ConfigError, "'", settings.file(), "': target_modules is empty");
  return words;
}

}  // namespace

std::vector<LoraTarget> lora_targets(LanguageModel& model, const std::vector<std::string>& words) {
  const detail::NameTable& names = names_of(model);
  const bool all = words.size() == 1 && words.front() == "all";
  std::set<std::string> unknown(words.begin(), words.end()), known;
  if (all) unknown.clear();
  Handles handles(model);
  std::vector<LoraTarget> targets;
  for (const NameRule& rule : names.rules) {
    const std::string_view name = module_of(rule);
    if (name.empty()) continue;
    const std::string word(last_word(name));
    known.insert(word);
    unknown.erase(word);
    if (!all && std::find(words.begin(), words.end(), word) == words.end()) continue;
    for (int64_t layer = 0; layer < model.config().layers; ++layer) {
      const auto found = handles.found.find(filled(rule.parameter, layer));
      if (found == handles.found.end()) continue;  // an activation without a gate
      const std::pair<int64_t, int64_t> rows = rows_of(rule.part, model.config().layout());
      targets.push_back({concat(names.base, filled(name, layer)), found->second, rows.first, rows.second});
    }
  }
  std::string list;
  for (const std::string& word : known) list += concat(list.empty() ? "" : ", ", word);
  HEED_CHECK(unknown.empty(), ConfigError, "the model has no '", *unknown.begin(), "' to adapt; it has ",
             list, ", or all");
  return targets;
}

void save_lora(Lora& lora, const LanguageModel& model, const std::string& base, const std::string& folder) {
  std::set<std::string> words;
  for (const LoraTarget& target : lora.targets()) words.emplace(last_word(target.name));
  detail::Json json;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = base;
  json["r"] = lora.options().rank;
  json["lora_alpha"] = lora.options().alpha;
  json["lora_dropout"] = 0.0;
  json["bias"] = "none";
  json["fan_in_fan_out"] = !is_llama(model);  // GPT-2 has its matrices as [in, out]
  json["inference_mode"] = true;
  json["target_modules"] = words;
  std::error_code error;
  fs::create_directories(folder, error);
  HEED_CHECK(!error, IoError, "cannot make the folder '", folder, "': ", error.message());
  save_weights(lora, folder + "/adapter_model.safetensors", {.prefix = kPrefix});
  write_whole_file(folder + "/adapter_config.json", json.dump(2) + "\n");
}

bool is_lora_folder(const std::string& folder) { return fs::exists(folder + "/adapter_config.json"); }

std::string lora_base(const std::string& folder) {
  return settings_of(folder).text("base_model_name_or_path");
}

std::unique_ptr<Lora> load_lora(LanguageModel& model, const std::string& folder) {
  const detail::Settings settings = settings_of(folder);
  const std::string kind = settings.text("peft_type");
  HEED_CHECK(kind == "LORA", ConfigError, "'", settings.file(), "': peft_type is '", kind,
             "'; heed has 'LORA'");
  for (const char* other : {"use_rslora", "use_dora"}) settings.expect_flag(other, false);
  const LoraOptions options{.rank = settings.integer("r", {}, kMaxRank),
                            .alpha = settings.number("lora_alpha")};
  Generator generator(0);
  auto lora = std::make_unique<Lora>(model, lora_targets(model, read_words(settings)), options, generator);
  load_weights(*lora, folder + "/adapter_model.safetensors", {.prefix = kPrefix});
  return lora;
}

}  // namespace heed::nn
