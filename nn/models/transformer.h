// The sequence-to-sequence Transformer (Vaswani et al., arXiv 1706.03762).
#pragma once

#include <memory>
#include <vector>

#include <heed/nn/decoding/tokens.h>
#include <heed/nn/layers/embedding.h>
#include <heed/nn/models/seq2seq.h>
#include <heed/nn/models/transformer_layer.h>

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
  /// memory[i] is what layer i attends to.
  Tensor operator()(const Tensor& x, const Segments& self_segments, const PooledVector<Memory>& memory,
                    const Segments& cross_segments, const AttentionCall& self_call,
                    const AttentionCall& cross_call) const;
  Tensor operator()(const Tensor& x, const Segments& self_segments, const Tensor& memory,
                    const Segments& cross_segments,
                    const AttentionCall& self_call = {.visibility = {Causal::top_left}},
                    const AttentionCall& cross_call = {}) const;
  void visit(Visitor& v) override;
  std::string describe() const override { return concat("Decoder(", layers.size(), " layers)"); }

  std::vector<std::unique_ptr<DecoderLayer>> layers;
  std::unique_ptr<Norm> norm;
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
class Transformer : public Seq2SeqModel {
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
  Tensor forward(const Tokens& source, const Tokens& target) const override {
    return forward(source, target, TransformerCalls{});
  }
  Tensor forward(const Tokens& source, const Tokens& target, const TransformerCalls& calls) const;
  std::unique_ptr<StepDecoder> start(const Tokens& source, int64_t hypotheses) const override;
  int64_t target_vocabulary() const override { return config_.target_vocabulary; }
  int64_t max_target() const override;

  /// Target tokens at given positions, all less than `positions` → [rows, d_model].
  Tensor embed_target(const Tensor& ids, const Tensor& position_ids, int64_t positions) const;
  /// What rotary positions turn the queries and keys of these rows by; none for other kinds.
  Rotation rotation(const Tensor& position_ids, int64_t positions) const;

  const TransformerConfig& config() const { return config_; }
  void visit(Visitor& v) override;
  std::string describe() const override;

  Embedding src_embedding, tgt_embedding;
  PositionTable position;
  Encoder encoder;
  Decoder decoder;
  Linear output;

 private:
  Tensor embed(const Embedding& embedding, const Tensor& ids, const Tensor& position_ids,
               int64_t positions) const;

  TransformerConfig config_;
};

}  // namespace heed::nn
