// Low-rank adapters of language models in the files of the Python package `peft`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <heed/nn/layers/lora.h>
#include <heed/nn/models/language_model.h>

namespace heed::nn {

/// The matrices of a model's layers that the words name as its family does: of Llama q_proj, k_proj, v_proj,
/// o_proj, gate_proj, up_proj, down_proj; of GPT-2 c_attn, c_fc and c_proj (of attention and feed-forward
/// both). "all": each of them. ConfigError for a word that names none, listing those that do.
std::vector<LoraTarget> lora_targets(LanguageModel& model, const std::vector<std::string>& words);

/// Writes adapter_config.json and adapter_model.safetensors, which `peft` loads onto the same model; `base`
/// tells where that is. The folder is made. IoError.
void save_lora(Lora& lora, const LanguageModel& model, const std::string& base, const std::string& folder);

/// Whether a folder holds adapters.
bool is_lora_folder(const std::string& folder);
/// Where the model is that a folder's adapters are of. IoError, CheckpointError, ConfigError.
std::string lora_base(const std::string& folder);
/// The adapters of a folder on their model. Errors as above; CheckpointError where the tensors do not fit.
std::unique_ptr<Lora> load_lora(LanguageModel& model, const std::string& folder);

}  // namespace heed::nn
