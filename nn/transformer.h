// The sequence-to-sequence Transformer (Vaswani et al., arXiv 1706.03762).
#pragma once

#include <memory>
#include <vector>

#include <heed/nn/embedding.h>
#include <heed/nn/tokens.h>
#include <heed/nn/transformer_layer.h>

namespace heed::nn {

/// A stack of layers with an optional norm at its end.
class Encoder : public Module {
 public:
  Encoder(const LayerConfig& config, int64_t layers, bool final_norm,
          Generator& generator = default_generator());
  Tensor operator()(const Tensor& x, const Segments& segments, const AttentionCall& call = {}) const;
  void visit(Visitor& v) override;
  std::string describe() const override { return concat("Encoder(", layers.size(), " layers)"); }

  std::vector<std::unique_ptr<EncoderLayer>> layers;
  std::unique_ptr<Norm> norm;
};

class Decoder : public Module {
 public:
  Decoder(const LayerConfig& config, int64_t layers, bool final_norm,
          Generator& generator = default_generator());
  /// memory[i] is what layer i attends to; self_attend(i, input) is its self-attention.
  template <class SelfAttention>
  Tensor run(const Tensor& x, SelfAttention&& self_attend, const PooledVector<Memory>& memory,
             const Segments& cross_segments, const AttentionCall& cross_call) const;
  Tensor operator()(const Tensor& x, const Segments& self_segments, const Tensor& memory,
                    const Segments& cross_segments,
                    const AttentionCall& self_call = {.visibility = {Causal::top_left}},
                    const AttentionCall& cross_call = {}) const;
  void visit(Visitor& v) override;
  std::string describe() const override { return concat("Decoder(", layers.size(), " layers)"); }

  std::vector<std::unique_ptr<DecoderLayer>> layers;
  std::unique_ptr<Norm> norm;

 private:
  DropoutOptions dropout() const;
};

/// What a forward may add to the three kinds of attention.
struct TransformerCalls {
  AttentionCall source = {};
  AttentionCall target = {.visibility = {Causal::top_left}};
  AttentionCall cross = {};
};

/// Embeddings with positions, encoder, decoder, and a linear layer to the target vocabulary. Parameters carry
/// the names of torch.nn.TransformerEncoder and TransformerDecoder, with src_embedding, tgt_embedding and
/// generator around.
class Transformer : public Module {
 public:
  explicit Transformer(const TransformerConfig& config, Generator& generator = default_generator());

  /// Source tokens → memory [source rows, d_model].
  Tensor encode(const Tokens& source, const AttentionCall& call = {}) const;
  /// Target tokens and memory → states [target rows, d_model].
  Tensor decode(const Tokens& target, const Tensor& memory, const Segments& source_segments,
                const TransformerCalls& calls = {}) const;
  /// States → logits [rows, target vocabulary].
  Tensor logits(const Tensor& states) const;
  /// All three: logits [target rows, target vocabulary] for the token after each target token.
  Tensor forward(const Tokens& source, const Tokens& target, const TransformerCalls& calls = {}) const;

  /// Target tokens at given positions → [rows, d_model].
  Tensor embed_target(const Tensor& ids, const Tensor& position_ids, int64_t positions) const;

  const TransformerConfig& config() const { return config_; }
  void visit(Visitor& v) override;
  std::string describe() const override;

  Embedding src_embedding, tgt_embedding;
  PositionTable position;
  Encoder encoder;
  Decoder decoder;
  Linear generator;

 private:
  Tensor embed(const Embedding& embedding, const Tensor& ids, const Tensor& position_ids,
               int64_t positions) const;

  TransformerConfig config_;
};

template <class SelfAttention>
Tensor Decoder::run(const Tensor& x, SelfAttention&& self_attend, const PooledVector<Memory>& memory,
                    const Segments& cross_segments, const AttentionCall& cross_call) const {
  const auto attend_in = [&](size_t layer) {
    return [&self_attend, layer](const Tensor& input) { return self_attend(layer, input); };
  };
  if (layers.empty()) return norm ? (*norm)(x) : x;
  if (layers.front()->placement == NormPlacement::post) {
    Tensor states = x;
    for (size_t i = 0; i < layers.size(); ++i)
      states = layers[i]->post_norm(states, attend_in(i), memory[i], cross_segments, cross_call);
    return norm ? (*norm)(states) : states;
  }
  ResidualNorm in{x, layers.front()->norm1(x)};
  for (size_t i = 0;; ++i) {
    const ResidualStream out = layers[i]->pre_norm(in, attend_in(i), memory[i], cross_segments, cross_call);
    const Norm* next = i + 1 < layers.size() ? &layers[i + 1]->norm1 : norm.get();
    if (!next) return residual_dropout(out.sum, out.branch, dropout());
    in = (*next)(out.sum, out.branch, dropout());
    if (i + 1 == layers.size()) return in.normed;
  }
}

}  // namespace heed::nn
