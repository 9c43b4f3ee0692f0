// Models that others have trained, in the files of Hugging Face and of llama.cpp, and heed's own for them.
//
// A folder has config.json and model.safetensors, or its parts with model.safetensors.index.json. Families:
// BERT and RoBERTa (TextEncoder), GPT-2 and Llama (LanguageModel), Marian (Transformer). A Llama may also be
// one GGUF file (heed/core/io/gguf.h), whose weights are dequantised. Files are read tensor by tensor, and
// nothing in them is taken on trust: sizes are compared with the file before memory is asked for.
#pragma once

#include <memory>
#include <string>

#include <heed/core/base/dtype.h>
#include <heed/nn/models/language_model.h>
#include <heed/nn/models/text_encoder.h>
#include <heed/nn/models/transformer.h>
#include <heed/nn/weights.h>

namespace heed::nn {

struct PretrainedOptions {
  /// The file must have every parameter, and no tensor that the family does not know.
  bool strict = true;
  /// What names in the file begin with before those of the family; tensors without it are passed over.
  std::string prefix = {};
  /// Of the parameters.
  DType dtype = DType::f32;
  /// Keeps the embedding and the matrices of a LanguageModel's layers as 8-bit integers, for inference on the
  /// CPU (heed/core/int8_weight.h); dtype must be f32.
  bool int8 = false;
  /// Told, where it is set, what was missing and unexpected.
  LoadReport* report = nullptr;
};

/// A TextEncoder, LanguageModel or Transformer with the weights of a folder or a GGUF file, in evaluation
/// mode. IoError for files that cannot be read, CheckpointError for those that are no sound files, do not fit
/// each other (with all that is missing, unexpected and misshapen) or hold another kind of model, ConfigError
/// for a model that heed does not have.
template <class Model>
std::unique_ptr<Model> load_pretrained(const std::string& path, const PretrainedOptions& options = {});
template <>
std::unique_ptr<TextEncoder> load_pretrained(const std::string& path, const PretrainedOptions& options);
template <>
std::unique_ptr<LanguageModel> load_pretrained(const std::string& path, const PretrainedOptions& options);
template <>
std::unique_ptr<Transformer> load_pretrained(const std::string& path, const PretrainedOptions& options);

struct PretrainedPartOptions {
  /// Where the module stands in the model that load_pretrained makes: "layers.2.", or "" for the whole.
  std::string part = {};
  bool strict = true;
  std::string prefix = {};
};

/// Gives a module of one's own the weights of such files, converted into its dtype: of the whole model or of
/// a part, such as one of its layers. All or nothing; errors as above.
LoadReport load_pretrained_weights(Module& module, const std::string& path,
                                   const PretrainedPartOptions& options = {});

/// Writes config.json and model.safetensors (f32), which `transformers` loads: as BertModel or RobertaModel,
/// GPT2LMHeadModel or LlamaForCausalLM, MarianMTModel. The folder is made. ConfigError for a model that these
/// have no setting for, with nothing written; IoError.
void save_pretrained(TextEncoder& model, const std::string& folder);
void save_pretrained(LanguageModel& model, const std::string& folder);
void save_pretrained(Transformer& model, const std::string& folder);

}  // namespace heed::nn
