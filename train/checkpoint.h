// Stopping and going on: everything that training needs to continue as if it had never stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <heed/core/serialize.h>
#include <heed/nn/module.h>
#include <heed/optim/optimizer.h>

namespace heed::train {

/// What a run has come to, besides weights and moments.
struct TrainingState {
  int64_t step = 0;      // optimizer steps taken
  int64_t epoch = 0;     // epochs completed
  int64_t position = 0;  // pairs of the present epoch seen
  uint64_t seed = 0;     // of the default generator
  uint64_t offset = 0;   // of the default generator
  double loss_sum = 0;   // over the present epoch's target tokens
  int64_t tokens = 0;    // target tokens of the present epoch
  double norm_sum = 0;   // of the present epoch's gradient norms
  int64_t batches = 0;   // of the present epoch
  std::string settings;  // what must not differ on resuming: lines of TOML
  std::string data;      // the data set's fingerprint
};

/// Writes DIR/checkpoint-STEP.safetensors, whole or not at all (DIR is made where it is missing): the model
/// with its buffers, the optimizer and `more` tensors, such as averages. Of those of earlier steps the newest
/// sound one stays, the others are deleted.
void save_checkpoint(const std::filesystem::path& directory, nn::Module& model,
                     const optim::Optimizer& optimizer, const TrainingState& state,
                     const NamedTensors& more = {});

/// Restores the newest sound checkpoint of DIR; a damaged one is passed over with a warning.
/// CheckpointError if there is none, or if its settings (but for the length of the run), its data or the
/// tensors it has differ; each difference of the settings is listed, and nothing has changed then.
TrainingState load_checkpoint(const std::filesystem::path& directory, nn::Module& model,
                              optim::Optimizer& optimizer, const std::string& settings,
                              const std::string& data, const NamedTensors& more = {});

/// The settings in the newest checkpoint of DIR whose header is sound; empty if there is none.
std::string saved_settings(const std::filesystem::path& directory);

/// Whether DIR holds a checkpoint.
bool has_checkpoint(const std::filesystem::path& directory);

/// Deletes the checkpoints of DIR.
void remove_checkpoints(const std::filesystem::path& directory);

}  // namespace heed::train
