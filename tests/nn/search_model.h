// A small model, sources, and all that it can answer them.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include <heed/core/ops.h>
#include <heed/nn/decoding/tokens.h>
#include <heed/nn/init.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {

inline std::unique_ptr<Transformer> small_model(NormPlacement norm, PositionKind position,
                                                int64_t vocabulary) {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = vocabulary;
  config.d_model = 24;
  config.heads = 3;
  config.d_ff = 40;
  config.encoder_layers = 2;
  config.decoder_layers = 2;
  config.norm = norm;
  config.position = position;
  config.key_heads = position == PositionKind::rotary ? 1 : 3;
  config.set_dropout(0.1);  // must not act while decoding
  Generator generator(5);
  auto model = std::make_unique<Transformer>(config, generator);
  initialize(*model, {{"*embedding*", Initializer::normal, 0.3}, {"*weight", Initializer::normal, 0.3}},
             generator);
  model->to(DType::f64);
  return model;
}

inline const std::vector<std::vector<int64_t>> kSources{{1, 3, 4, 2}, {1, 5, 2}, {1, 3, 3, 4, 5, 2}};

// Log probabilities of every output of at most `length` tokens, by brute force.
inline void enumerate(const Transformer& model, const Tensor& memory, const Tokens& source,
                      std::vector<int64_t> input, double score, int64_t length, double alpha,
                      std::map<std::vector<int64_t>, double>& all) {
  const Tensor logits = model.logits(model.decode(Tokens::packed({input}), memory, source.segments));
  const std::vector<double> row = log_softmax(logits.select(0, logits.size(0) - 1)).to_vector<double>();
  const auto made = static_cast<int64_t>(input.size());  // tokens with this one
  const double penalty = std::pow((5.0 + static_cast<double>(made)) / 6.0, alpha);
  for (int64_t token = 0; token < static_cast<int64_t>(row.size()); ++token) {
    const double next = score + row[static_cast<size_t>(token)];
    std::vector<int64_t> output(input.begin() + 1, input.end());
    if (token == 2) {
      all[output] = next / penalty;
      continue;
    }
    std::vector<int64_t> longer = input;
    longer.push_back(token);
    if (made == length) {
      output.push_back(token);
      all[output] = next / penalty;
    } else {
      enumerate(model, memory, source, longer, next, length, alpha, all);
    }
  }
}

}  // namespace heed::nn
