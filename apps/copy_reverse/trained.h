// A trained model as the commands that use one open it, and the pairs that it is tested on.
#pragma once

#include <memory>

#include "apps/copy_reverse/commands.h"

namespace heed::apps {

struct Trained {
  Settings settings;
  Device device;
  std::unique_ptr<nn::Seq2SeqModel> model;
  data::Marks marks() const { return settings.marks(); }
};

Trained open_model(const ModelSettings& settings);

/// Generated pairs other than those of the training's validation, if the options say so.
void use_pairs(Settings& settings, const PairsSettings& options);

/// Those of --data, else those that validated the training. ConfigError where there are none.
std::shared_ptr<const data::PairDataset> pairs_of(const ModelSettings& settings, const Trained& trained);

}  // namespace heed::apps
