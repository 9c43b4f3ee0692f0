// A small model from letters to symbols, with weights as they are drawn: its outputs mean nothing, but depend
// on every letter.
#pragma once

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/nn/text/text_model.h>

namespace heed {

inline nn::TextModel random_text_model(uint64_t seed = 55) {
  const std::vector<std::string> letters{"abcdefgh "}, symbols{"A B C D E F G H"};
  const auto source = data::train_tokenizer({.kind = data::TokenizerKind::characters}, {letters});
  const auto target = data::train_tokenizer({.kind = data::TokenizerKind::symbols}, {symbols});
  nn::TransformerConfig config;
  config.source_vocabulary = source->vocab();
  config.target_vocabulary = target->vocab();
  config.d_model = 32;
  config.heads = 2;
  config.d_ff = 64;
  config.encoder_layers = config.decoder_layers = 2;
  config.set_dropout(0);
  config.embedding_deviation = 1;
  Generator generator(seed);
  auto model = std::make_shared<nn::Transformer>(config, generator);
  model->eval();
  {
    const NoGrad no_grad;  // no marks within outputs
    std::vector<float> bias(static_cast<size_t>(config.target_vocabulary), 0.0f);
    for (const int64_t mark : {data::kPad, data::kStart, data::kFirstSymbol})
      bias[static_cast<size_t>(mark)] = -50;
    model->output.bias.copy_(tensor(bias, {config.target_vocabulary}));
  }
  return {model, source, target, 24};
}

}  // namespace heed
