// Training of decoder-only models: sequences packed into batches, and the loss of the tokens that follow.
#pragma once

#include <cstdint>
#include <functional>

#include <heed/data/dataset.h>
#include <heed/data/loader.h>
#include <heed/data/pair_batch.h>
#include <heed/nn/models/language_model.h>
#include <heed/train/trainer.h>

namespace heed::train {

/// How samples (n + 1 ids: n tokens, and what follows each) become a batch: one after another without
/// padding, none attending to another, positions counted from the start of each. `longest`: tokens of the
/// longest sample, 0 if not known.
data::Collate<data::TokenIds, Batch> language_model_collate(Device device, int64_t longest = 0);

/// The mean cross-entropy of a batch's tokens. The model must outlive it.
LossFunction language_model_loss(const nn::LanguageModel& model, double label_smoothing = 0);

/// How well a data set is predicted.
struct Prediction {
  double loss = 0;  // the sum over all tokens, in nats
  int64_t tokens = 0;

  double mean() const { return tokens > 0 ? loss / static_cast<double>(tokens) : 0; }
  double perplexity() const;
  /// Of a text of that many characters: independent of how it is cut into tokens.
  double bits_per_character(int64_t characters) const;
};

/// Of all samples, each once, in batches of at most `rows` tokens; `before_batch`, where set, is called
/// before each. Dropout is off, and nothing is recorded. ConfigError where a sample has more than `rows`.
Prediction predict(nn::LanguageModel& model, const data::Dataset<data::TokenIds>& dataset, int64_t rows,
                   const std::function<void()>& before_batch = {});

}  // namespace heed::train
