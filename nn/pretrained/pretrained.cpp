#include <filesystem>
#include <optional>
#include <utility>

#include <heed/core/base/memory/allocator.h>
#include <heed/core/io/atomic_file.h>
#include <heed/nn/parameter.h>
#include <heed/nn/pretrained/detail/families.h>
#include <heed/nn/pretrained/pretrained.h>

namespace heed::nn {
namespace detail {
namespace {

constexpr std::pair<const char*, FeedForwardKind> kActivations[] = {
    {"gelu", FeedForwardKind::gelu},
    {"gelu_new", FeedForwardKind::gelu_tanh},
    {"gelu_pytorch_tanh", FeedForwardKind::gelu_tanh},
    {"relu", FeedForwardKind::relu},
    {"silu", FeedForwardKind::silu},
    {"swish", FeedForwardKind::silu}};

}  // namespace

FeedForwardKind read_activation(const Settings& settings, const char* key, const char* standard) {
  const std::string text = settings.text(key, standard);
  for (const auto& entry : kActivations)
    if (text == entry.first) return entry.second;
  throw ConfigError(concat("'", settings.file(), "': ", key, " is '", text,
                           "'; heed has gelu, gelu_new, gelu_pytorch_tanh, relu and silu"));
}

std::string activation_text(FeedForwardKind kind) {
  for (const auto& entry : kActivations)
    if (kind == entry.second) return entry.first;
  throw ConfigError(concat("save_pretrained: the family has no activation ", name(kind)));
}

void expect_setting(bool holds, const char* family, const char* setting) {
  HEED_CHECK(holds, ConfigError, "save_pretrained: ", family, " has no setting for the model's ", setting);
}

}  // namespace detail

namespace {

namespace fs = std::filesystem;
using detail::NameQuery;
using detail::NameTable;
using detail::Settings;
using detail::WeightFiles;

constexpr uint64_t kMaxConfigBytes = 1 << 20;

/// What a path holds: the kind of model, and the weights.
struct Source {
  std::string family;  // config.json's model_type, or "gguf"
  Settings settings;
  std::shared_ptr<const GgufReader> gguf;
  WeightFiles files;
};

Source open_source(const std::string& path) {
  if (!fs::is_directory(path)) {
    HEED_CHECK(fs::exists(path), IoError, "there is no '", path, "'");
    HEED_CHECK(path.ends_with(".gguf"), CheckpointError, "'", path,
               "' is neither a folder with config.json and model.safetensors nor a .gguf file");
    auto gguf = std::make_shared<const GgufReader>(path);
    WeightFiles files = detail::open_gguf(gguf);
    return {"gguf", Settings({}, path), gguf, std::move(files)};
  }
  const std::string folder = path.ends_with('/') ? path : path + '/', config = folder + "config.json";
  HEED_CHECK(fs::exists(config), IoError, "'", path, "' has no config.json");
  Settings settings = detail::read_settings(config, kMaxConfigBytes);
  std::string family = settings.text("model_type");
  const std::string one = folder + "model.safetensors", index = one + ".index.json";
  HEED_CHECK(fs::exists(one) || fs::exists(index), IoError, "'", path,
             "' has neither model.safetensors nor model.safetensors.index.json",
             fs::exists(folder + "pytorch_model.bin") ? "; heed does not read pytorch_model.bin" : "");
  return {std::move(family), std::move(settings), nullptr,
          fs::exists(one) ? detail::open_safetensors(one) : detail::open_shards(index)};
}

[[noreturn]] void refuse(const Source& source, const char* model, const char* families) {
  throw CheckpointError(concat("'", source.settings.file(), "' describes a '", source.family, "'; ", model,
                               " takes ", families));
}

/// A configuration and the names that belong to it.
template <class Config>
struct Described {
  Config config;
  const NameTable& names;
};

Described<TextEncoderConfig> describe_encoder(const Source& source, const std::string& prefix) {
  const bool bert = source.family == "bert";
  if (!bert && source.family != "roberta") refuse(source, "TextEncoder", "bert and roberta");
  Described<TextEncoderConfig> result{
      bert ? detail::read_bert(source.settings) : detail::read_roberta(source.settings),
      bert ? detail::kBertNames : detail::kRobertaNames};
  const auto& tensors = source.files.tensors;
  result.config.pooler = tensors.contains(prefix + "pooler.dense.weight") ||
                         tensors.contains(prefix + result.names.base + "pooler.dense.weight");
  return result;
}

Described<LanguageModelConfig> describe_language_model(const Source& source) {
  if (source.gguf) return {detail::read_llama(*source.gguf), detail::kLlamaGgufNames};
  if (source.family == "gpt2") return {detail::read_gpt2(source.settings), detail::kGpt2Names};
  if (source.family == "llama") return {detail::read_llama(source.settings), detail::kLlamaNames};
  refuse(source, "LanguageModel", "gpt2, llama and GGUF files");
}

Described<TransformerConfig> describe_transformer(const Source& source) {
  if (source.family != "marian") refuse(source, "Transformer", "marian");
  return {detail::read_marian(source.settings), detail::kMarianNames};
}

/// Compares names and shapes before a model of that size has memory.
template <class Model, class Config>
std::vector<std::string> missing_in_file(const Source& source, const Config& config, const NameQuery& query) {
  const ShapesOnly shapes_only;
  Model shapes(config);
  return detail::check_named(shapes, source.files, query).missing;
}

/// Those of a LanguageModel that linear layers and embeddings alone read.
constexpr const char* kInt8Parameters[] = {"embedding.weight",    "generator.weight", "*.in_proj_weight",
                                           "*.out_proj.weight",   "*.linear1.weight", "*.linear2.weight",
                                           "*.linear_gate.weight"};

template <class Model, class Config>
std::unique_ptr<Model> load(const Source& source, const Described<Config>& described,
                            const PretrainedOptions& options) {
  HEED_CHECK(!options.int8 || (std::is_same_v<Model, LanguageModel> && options.dtype == DType::f32),
             ConfigError, "load_pretrained: weights of 8-bit integers are those of a LanguageModel in f32");
  const Config& config = described.config;
  const NameQuery query{.table = described.names,
                        .layout = config.head_layout().of(config.d_model),
                        .prefix = options.prefix,
                        .strict = options.strict};
  const bool complete = missing_in_file<Model>(source, config, query).empty();
  std::optional<Unfilled> unfilled;
  if (complete) unfilled.emplace(options.dtype);
  auto model = std::make_unique<Model>(config);
  unfilled.reset();
  if (options.int8) {
    detail::load_as_int8(*model, source.files, query, kInt8Parameters);
    cpu_allocator().release_cached();
  }
  model->to(options.dtype);  // gives what is unfilled its memory
  LoadReport report = detail::load_named(*model, source.files, query, false);
  if (options.report) *options.report = std::move(report);
  model->eval();
  return model;
}

void save(Module& model, const std::string& folder, const detail::Json& config, const NameTable& names,
          const HeadLayout& layout, bool with_base = true) {
  const NamedTensors tensors = detail::named_tensors(model, names, layout, with_base);
  std::error_code error;
  fs::create_directories(folder, error);
  HEED_CHECK(!error, IoError, "cannot make the folder '", folder, "': ", error.message());
  save_tensors(folder + "/model.safetensors", tensors);
  write_whole_file(folder + "/config.json", config.dump(2) + "\n");
}

}  // namespace

template <>
std::unique_ptr<TextEncoder> load_pretrained(const std::string& path, const PretrainedOptions& options) {
  const Source source = open_source(path);
  return load<TextEncoder>(source, describe_encoder(source, options.prefix), options);
}

template <>
std::unique_ptr<LanguageModel> load_pretrained(const std::string& path, const PretrainedOptions& options) {
  const Source source = open_source(path);
  return load<LanguageModel>(source, describe_language_model(source), options);
}

template <>
std::unique_ptr<Transformer> load_pretrained(const std::string& path, const PretrainedOptions& options) {
  const Source source = open_source(path);
  return load<Transformer>(source, describe_transformer(source), options);
}

LoadReport load_pretrained_weights(Module& module, const std::string& path,
                                   const PretrainedPartOptions& options) {
  const Source source = open_source(path);
  const auto load = [&](const auto& described) {
    const auto& config = described.config;
    return detail::load_named(module, source.files,
                              {.table = described.names,
                               .layout = config.head_layout().of(config.d_model),
                               .part = options.part,
                               .prefix = options.prefix,
                               .strict = options.strict},
                              true);
  };
  if (source.family == "marian") return load(describe_transformer(source));
  if (source.family == "bert" || source.family == "roberta")
    return load(describe_encoder(source, options.prefix));
  return load(describe_language_model(source));
}

void save_pretrained(TextEncoder& model, const std::string& folder) {
  const TextEncoderConfig& config = model.config();
  save(model, folder, detail::write_bert(config), detail::kBertNames, config.layout(), false);
}

void save_pretrained(LanguageModel& model, const std::string& folder) {
  const LanguageModelConfig& config = model.config();
  const bool llama = config.position == PositionKind::rotary;
  save(model, folder, llama ? detail::write_llama(config) : detail::write_gpt2(config),
       llama ? detail::kLlamaNames : detail::kGpt2Names, config.layout());
}

void save_pretrained(Transformer& model, const std::string& folder) {
  const TransformerConfig& config = model.config();
  save(model, folder, detail::write_marian(config), detail::kMarianNames,
       config.head_layout().of(config.d_model));
}

}  // namespace heed::nn
