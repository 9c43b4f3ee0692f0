// The families of models: their names for weights and their settings.
#pragma once

#include <heed/core/io/gguf.h>
#include <heed/nn/models/language_model.h>
#include <heed/nn/models/text_encoder.h>
#include <heed/nn/models/transformer.h>
#include <heed/nn/pretrained/detail/name_table.h>
#include <heed/nn/pretrained/detail/settings_file.h>
#include <heed/nn/pretrained/detail/written_json.h>

namespace heed::nn::detail {

extern const NameTable kBertNames, kRobertaNames, kGpt2Names, kLlamaNames, kLlamaGgufNames, kMarianNames;

/// Whether there is a pooler stands in the weights, not in the settings.
TextEncoderConfig read_bert(const Settings& settings);
TextEncoderConfig read_roberta(const Settings& settings);
LanguageModelConfig read_gpt2(const Settings& settings);
LanguageModelConfig read_llama(const Settings& settings);
LanguageModelConfig read_llama(const GgufReader& file);
TransformerConfig read_marian(const Settings& settings);

/// The config.json of a model; ConfigError if the family has no setting for something of it.
Json write_bert(const TextEncoderConfig& config);  // or RoBERTa
Json write_gpt2(const LanguageModelConfig& config);
Json write_llama(const LanguageModelConfig& config);
Json write_marian(const TransformerConfig& config);

constexpr int64_t kMaxLayers = 4096;

/// "gelu", "gelu_new", …; ConfigError for those that heed does not have.
FeedForwardKind read_activation(const Settings& settings, const char* key, const char* standard);
/// Hugging Face's name; ConfigError for swiglu, which is none.
std::string activation_text(FeedForwardKind kind);
/// ConfigError with the setting's name unless what a family takes for granted holds.
void expect_setting(bool holds, const char* family, const char* setting);

}  // namespace heed::nn::detail
