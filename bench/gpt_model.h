// The decoder-only Transformer of the programs that time GPT-2's training step.
#pragma once

#include <heed/nn/models/language_model.h>

namespace heed::bench {

/// By default GPT-2 with 124 million parameters.
struct GptSizes {
  int64_t d_model = 768, heads = 12, layers = 12, vocab = 50257, context = 1024;

  nn::LanguageModelConfig config() const {
    nn::LanguageModelConfig c = nn::LanguageModelConfig::gpt2();
    c.d_model = d_model;
    c.heads = heads;
    c.layers = layers;
    c.d_ff = 4 * d_model;
    c.vocabulary = vocab;
    c.max_length = context;
    return c;
  }
};

}  // namespace heed::bench
