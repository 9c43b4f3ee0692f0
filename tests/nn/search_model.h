// A small model, sources, and all that it can answer them.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/decoding/tokens.h>
#include <heed/nn/init.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {

/// The config's sizes of vocabularies and numbers of layers stand.
inline std::unique_ptr<Transformer> small_model(TransformerConfig config, uint64_t seed) {
  config.d_model = 24;
  config.heads = 3;
  config.d_ff = 40;
  config.set_dropout(0.1);  // must not act while decoding
  Generator generator(seed);
  auto model = std::make_unique<Transformer>(config, generator);
  initialize(*model, {{"*embedding*", Initializer::normal, 0.3}, {"*weight", Initializer::normal, 0.3}},
             generator);
  return model;
}

inline std::unique_ptr<Transformer> small_model(NormPlacement norm, PositionKind position,
                                                int64_t vocabulary) {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = vocabulary;
  config.encoder_layers = 2;
  config.decoder_layers = 2;
  config.norm = norm;
  config.position = position;
  config.key_heads = position == PositionKind::rotary ? 1 : 3;
  auto model = small_model(config, 5);
  model->to(DType::f64);
  return model;
}

inline const std::vector<std::vector<int64_t>> kSources{{1, 3, 4, 2}, {1, 5, 2}, {1, 3, 3, 4, 5, 2}};

using Scores = std::map<std::vector<int64_t>, double>;  // of outputs

/// Adds the scores of all outputs that begin with `input`, which has the start mark and a score of `score`.
template <class Next>
void enumerate(const Next& next, const std::vector<int64_t>& input, double score, int64_t length,
               double alpha, Scores& all) {
  const std::vector<double> row = next(input);
  const auto made = std::ssize(input);  // tokens with this one
  const double penalty = std::pow((5.0 + static_cast<double>(made)) / 6.0, alpha);
  for (int64_t token = 0; token < std::ssize(row); ++token) {
    const double sum = score + row[static_cast<size_t>(token)];
    std::vector<int64_t> longer = input;
    if (token != 2) longer.push_back(token);
    if (token == 2 || made == length)
      all[{longer.begin() + 1, longer.end()}] = sum / penalty;
    else
      enumerate(next, longer, sum, length, alpha, all);
  }
}

/// The scores of every output of at most `length` tokens, by brute force; next(input): the log probabilities
/// of the token behind it.
template <class Next>
Scores all_outputs(const Next& next, int64_t length, double alpha) {
  Scores all;
  enumerate(next, {1}, 0, length, alpha, all);
  return all;
}

inline Scores all_outputs(const Transformer& model, const Tokens& source, int64_t length, double alpha) {
  const Tensor memory = model.encode(source);
  const auto next = [&](const std::vector<int64_t>& input) {
    const Tensor logits = model.logits(model.decode(Tokens::packed({input}), memory, source.segments));
    return log_softmax(logits.select(0, logits.size(0) - 1)).to_vector<double>();
  };
  return all_outputs(next, length, alpha);
}

/// The best is the first, and each has its score.
inline void expect_best_of(const Scores& all, const std::vector<Hypothesis>& found) {
  const auto best = std::max_element(all.begin(), all.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_NEAR(found.front().score, best->second, 1e-5);
  for (const Hypothesis& h : found) EXPECT_NEAR(h.score, all.at(h.tokens), 1e-5);
}

/// Draws outputs of at most two tokens: each has its score, and comes as often as that says, within five
/// deviations.
inline void expect_drawn_from(const Scores& all, Seq2SeqModel& model, const Tokens& source) {
  Generator generator(3);
  const int64_t draws = 4000;
  const auto found = beam_search(
      model, source, {.max_length = 2, .beam = draws, .sample = SampleOptions{.generator = &generator}});
  std::map<std::vector<int64_t>, int> counts;
  for (const Hypothesis& h : found.front()) {
    ++counts[h.tokens];
    EXPECT_NEAR(h.score, all.at(h.tokens), 1e-5);
  }
  for (const auto& [tokens, score] : all) {
    const double p = std::exp(score), deviation = std::sqrt(draws * p * (1 - p));
    EXPECT_NEAR(counts[tokens], draws * p, 5 * deviation + 1);
  }
}

}  // namespace heed::nn
