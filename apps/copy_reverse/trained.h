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

/// A source as a pair; a model without end marks needs the target to know where an output ends. DataError for
/// one that is longer than learned positions.
data::Pair pair_of(data::TokenIds source, const Settings& settings);

/// Tokens that an output may have: so many, or, if 0, twice those of the longest source and 10 more, as far
/// as the model has positions.
int64_t longest_output(int64_t max_decode_length, int64_t longest_source, const nn::Seq2SeqModel& model);

/// Those of --data, else those that validated the training. ConfigError where there are none.
std::shared_ptr<const data::PairDataset> pairs_of(const ModelSettings& settings, const Trained& trained);

}  // namespace heed::apps
