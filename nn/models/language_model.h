// A decoder-only Transformer: each token is predicted from those before it.
#pragma once

#include <memory>

#include <heed/core/losses.h>
#include <heed/nn/attention/key_value_cache.h>
#include <heed/nn/decoding/tokens.h>
#include <heed/nn/layers/embedding.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {

struct LanguageModelConfig : LayerConfig {
  int64_t vocabulary = 0;
  int64_t layers = 12;
  int64_t max_length = 1024;  // of learned positions only
  double embedding_dropout = 0;
  bool scale_embeddings = false;  // by √d_model
  bool tie_embeddings = true;     // the logits' weight is the embedding's
  int64_t window = 0;             // tokens that each sees, itself the last; 0: all up to itself
  int64_t global_tokens = 0;      // the first tokens of a text, which all see beside their window
  BlockPattern blocks = {};       // which blocks of tokens see which; must hold the longest text

  /// GPT-2 with 124 million parameters (Radford et al., 2019), without dropout: pre-norm, learned positions,
  /// GELU by tanh.
  static LanguageModelConfig gpt2();
  /// Llama with 134 million parameters (arXiv 2307.09288; the sizes are those of SmolLM2): pre-norm by RMS
  /// norms, rotary positions, SwiGLU, grouped queries, no biases.
  static LanguageModelConfig llama();

  HeadLayout layout() const { return head_layout().of(d_model); }
  /// ConfigError with the name and value of the first setting that cannot be.
  void check() const;
};

/// Embeddings with positions, causal layers, and logits over the vocabulary: by the embedding's own weight,
/// or by `output`, without bias. Matrices begin N(0, 0.02), biases 0. Parameters: embedding.weight,
/// position.weight, layers.0.self_attn.in_proj_weight, …, norm.weight, generator.weight, as far as there are
/// such.
class LanguageModel : public Module {
 public:
  explicit LanguageModel(const LanguageModelConfig& config, Generator& generator = default_generator());

  /// Logits [rows, vocabulary] for the token after each: f32 of a bf16 model, unrounded, for rounded ones of
  /// likely tokens would often be equal.
  Tensor forward(const Tokens& tokens) const;
  /// The same for tokens that follow what the cache holds, which it then holds too.
  Tensor forward(const Tokens& tokens, KeyValueCache& cache) const;
  /// The two halves of a forward: states [rows, d_model], and their logits. `cache` may be null.
  Tensor states(const Tokens& tokens, KeyValueCache* cache = nullptr) const;
  Tensor logits(const Tensor& states) const;
  /// The cross-entropy of the logits against the tokens that follow, [rows], by linear_cross_entropy: of many
  /// words at a fraction of the memory.
  Tensor loss(const Tokens& tokens, const Tensor& targets, const CrossEntropyOptions& options = {}) const;

  /// An empty one that fits.
  KeyValueCache make_cache(int64_t sequences) const;

  const LanguageModelConfig& config() const { return config_; }
  void visit(Visitor& v) override;
  std::string describe() const override;

  Embedding embedding;
  PositionTable position;
  Encoder layers;
  std::unique_ptr<Linear> output;  // null if tied

 private:
  LanguageModelConfig config_;
};

}  // namespace heed::nn
