// A text model's folder. The architecture stands in the metadata of its weights, so that one file is whole.
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include <heed/core/io/safetensors.h>
#include <heed/nn/inspection.h>
#include <heed/nn/parameter.h>
#include <heed/nn/text/text_model.h>
#include <heed/nn/weights.h>

namespace heed::nn {
namespace {

namespace fs = std::filesystem;

using Metadata = std::map<std::string, std::string>;

constexpr const char* kFormatKey = "heed.text_model";
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMax = int64_t{1} << 24;

/// Calls field(name, member) for all that a trained model depends on: not for dropout.
template <class Field>
void for_each_field(TransformerConfig& c, Field&& field) {
  field("source_vocabulary", c.source_vocabulary);
  field("target_vocabulary", c.target_vocabulary);
  field("d_model", c.d_model);
  field("heads", c.heads);
  field("key_heads", c.key_heads);
  field("head_width", c.head_width);
  field("d_ff", c.d_ff);
  field("encoder_layers", c.encoder_layers);
  field("decoder_layers", c.decoder_layers);
  field("max_length", c.max_length);
  field("relative_limit", c.relative_limit);
  field("norm", c.norm);
  field("norm_kind", c.norm_kind);
  field("activation", c.activation);
  field("position", c.position);
  field("rotary_base", c.rotary.base);
  field("rotary_width", c.rotary.width);
  field("rotary_pairing", c.rotary.pairing);
  field("rotary_scaling", c.rotary.scaling.kind);
  field("rotary_factor", c.rotary.scaling.factor);
  field("rotary_low_frequency", c.rotary.scaling.low_frequency);
  field("rotary_high_frequency", c.rotary.scaling.high_frequency);
  field("rotary_original_length", c.rotary.scaling.original_length);
  field("eps", c.eps);
  field("qkv_bias", c.qkv_bias);
  field("out_bias", c.out_bias);
  field("feed_forward_bias", c.feed_forward_bias);
  field("scale_embeddings", c.scale_embeddings);
  field("final_norm", c.final_norm);
  field("tie_generator", c.tie_generator);
  field("share_embeddings", c.share_embeddings);
}

std::string to_text(int64_t value) { return std::to_string(value); }
std::string to_text(bool value) { return value ? "true" : "false"; }
std::string to_text(double value) { return significant_text(value, 17); }
std::string to_text(const std::optional<bool>& value) { return value ? to_text(*value) : "unset"; }
template <class Enum>
std::string to_text(Enum value) {
  return name(value);
}
constexpr std::pair<const char*, RotaryPairing> kPairings[] = {{"half", RotaryPairing::half},
                                                               {"interleaved", RotaryPairing::interleaved}};
constexpr std::pair<const char*, RotaryScalingKind> kScalings[] = {{"none", RotaryScalingKind::none},
                                                                   {"linear", RotaryScalingKind::linear},
                                                                   {"ntk", RotaryScalingKind::ntk},
                                                                   {"llama3", RotaryScalingKind::llama3}};
template <class Words, class Enum>
std::string word_of(const Words& words, Enum value) {
  for (const auto& entry : words)
    if (entry.second == value) return entry.first;
  return "?";
}
std::string to_text(RotaryPairing value) { return word_of(kPairings, value); }
std::string to_text(RotaryScalingKind value) { return word_of(kScalings, value); }

/// False where the text is no value of that type.
bool from_text(const std::string& text, int64_t& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value >= 0 && value <= kMax;
}
bool from_text(const std::string& text, double& value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value > 0 && value <= kMax;
}
bool from_text(const std::string& text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
bool from_text(const std::string& text, std::optional<bool>& value) {
  bool set = false;
  value.reset();
  if (text == "unset") return true;
  if (!from_text(text, set)) return false;
  value = set;
  return true;
}
bool from_text(const std::string& text, NormPlacement& value) { return value = parse_norm(text), true; }
bool from_text(const std::string& text, NormKind& value) { return value = parse_norm_kind(text), true; }
bool from_text(const std::string& text, FeedForwardKind& value) {
  return value = parse_feed_forward(text), true;
}
template <class Words, class Enum>
bool find_word(const Words& words, const std::string& text, Enum& value) {
  for (const auto& entry : words)
    if (text == entry.first) return value = entry.second, true;
  return false;
}
bool from_text(const std::string& text, RotaryPairing& value) { return find_word(kPairings, text, value); }
bool from_text(const std::string& text, RotaryScalingKind& value) {
  return find_word(kScalings, text, value);
}
bool from_text(const std::string& text, PositionKind& value) { return value = parse_position(text), true; }

class MetadataReader {
 public:
  MetadataReader(const Metadata& metadata, const std::string& file) : metadata_(metadata), file_(file) {}

  template <class Value>
  void operator()(const std::string& key, Value& value) const {
    const auto found = metadata_.find(key);
    HEED_CHECK(found != metadata_.end(), CheckpointError, file_, ": the entry '", key, "' is missing");
    bool read = false;
    try {
      read = from_text(found->second, value);
    } catch (const ConfigError&) {  // a word that names nothing
    }
    HEED_CHECK(read, CheckpointError, file_, ": the entry '", key, "' cannot be '", found->second, "'");
  }

 private:
  const Metadata& metadata_;
  const std::string& file_;
};

struct Architecture {
  TransformerConfig config;
  int64_t max_output = 0;
};

Architecture read_architecture(const std::string& file) {
  const SafetensorsReader reader(file);
  const SafetensorsHeader& header = reader.header();
  HEED_CHECK(header.metadata.contains(kFormatKey), CheckpointError, file,
             ": these are no weights of a text model: the entry '", kFormatKey, "' is missing");
  read_format_version(header, kFormatKey, kFormatVersion, kFormatVersion, file);
  Architecture result;
  const MetadataReader read(header.metadata, file);
  for_each_field(result.config, read);
  read("max_output", result.max_output);
  result.config.set_dropout(0);
  constexpr int64_t kMaxLayers = 1024;
  HEED_CHECK(result.config.encoder_layers <= kMaxLayers && result.config.decoder_layers <= kMaxLayers &&
                 result.max_output > 0,
             CheckpointError, file, ": more than ", kMaxLayers, " layers, or outputs of no tokens");
  try {
    result.config.check();
  } catch (const ConfigError& error) {
    throw CheckpointError(concat(file, ": ", error.what()));
  }
  return result;
}

}  // namespace

void TextModel::save(const std::string& folder, DType dtype) const {
  HEED_CHECK(models_.size() == 1, StateError, folder, ": an ensemble of ", models_.size(),
             " models is no single folder; save its models one by one");
  Metadata metadata{{"format", "pt"},
                    {kFormatKey, std::to_string(kFormatVersion)},
                    {"max_output", std::to_string(max_output_)}};
  TransformerConfig config = model().config();
  for_each_field(config, [&](const char* key, const auto& value) { metadata[key] = to_text(value); });
  const fs::path to = folder;
  data::save_tokenizer(*source_, (to / "source.tokenizer").string());
  data::save_tokenizer(*target_, (to / "target.tokenizer").string());
  save_weights(model(), (to / "model.safetensors").string(), {.metadata = metadata, .dtype = dtype});
}

TextModel load_text_model(const std::string& folder, Device device) {
  const std::string file = (fs::path(folder) / "model.safetensors").string();
  const Architecture architecture = read_architecture(file);
  const auto source = data::load_tokenizer((fs::path(folder) / "source.tokenizer").string());
  const auto target = data::load_tokenizer((fs::path(folder) / "target.tokenizer").string());
  HEED_CHECK(source->vocab() == architecture.config.source_vocabulary &&
                 target->vocab() == architecture.config.target_vocabulary,
             CheckpointError, folder, ": the tokenizers have ", source->vocab(), " and ", target->vocab(),
             " ids, the weights rows for ", architecture.config.source_vocabulary, " and ",
             architecture.config.target_vocabulary);
  {
    const ShapesOnly shapes_only;
    Transformer shapes(architecture.config);
    check_weights(shapes, file);
  }
  auto model = std::make_shared<Transformer>(architecture.config);
  load_weights(*model, file);
  check_finite(*model, file);
  model->to(device);
  model->eval();
  return TextModel(std::move(model), source, target, architecture.max_output);
}

TextModel load_text_ensemble(const std::vector<std::string>& folders, Device device) {
  std::vector<TextModel> models;
  for (const std::string& folder : folders) models.push_back(load_text_model(folder, device));
  return TextModel::ensemble(models);
}

}  // namespace heed::nn
