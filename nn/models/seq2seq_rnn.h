// A recurrent sequence-to-sequence model with additive attention.
#pragma once

#include <heed/nn/layers/embedding.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/layers/recurrent.h>
#include <heed/nn/models/seq2seq.h>

namespace heed::nn {

/// Additive attention with its projections (Bahdanau et al., arXiv 1409.0473): the keys are projected once
/// for all queries.
class AdditiveAttention : public Module {
 public:
  /// Of queries and keys of these widths, compared in `hidden` columns. ConfigError unless all are positive.
  AdditiveAttention(int64_t query_width, int64_t key_width, int64_t hidden,
                    Generator& generator = default_generator());

  /// Memory [key rows, key_width] → [key rows, hidden].
  Tensor project_keys(const Tensor& memory) const { return key(memory); }
  /// Queries x [query rows, query_width] and projected keys → [query rows, key_width], of the memory.
  Tensor operator()(const Tensor& x, const Tensor& keys, const Tensor& memory,
                    const Segments& segments) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  std::string name;   // under which an AttentionRecord lists it
  Linear query, key;  // that of the queries without a bias
  Tensor score;       // [hidden]
};

struct Seq2SeqRnnConfig {
  CellKind cell = CellKind::gru;
  int64_t source_vocabulary = 0, target_vocabulary = 0;
  int64_t d_model = 128;       // of embeddings and of the states of all layers
  int64_t encoder_layers = 1;  // each in both directions, half of d_model in each
  int64_t decoder_layers = 2;  // the first asks; the others read what it found
  double dropout = 0;          // of embeddings, and of what each layer hands on

  /// ConfigError with the name and value of the first setting that cannot be.
  void check() const;
};

/// An encoder in both directions; a decoder whose first layer reads the target and begins from what the
/// encoder ended with; its states are the queries of an additive attention, and with what that found they are
/// the input of the decoder's other layers, or of the output. So all target tokens are computed together: the
/// context enters the recurrence above the layer that asks, as in arXiv 1609.08144, and not, as in arXiv
/// 1409.0473, that layer's next step. Parameters: src_embedding.weight, tgt_embedding.weight,
/// encoder.weight_ih_l0, …, bridge.weight, query_rnn.weight_ih_l0, …, attention.query.weight,
/// attention.score, …, decoder.weight_ih_l0, …, generator.weight, ….
class Seq2SeqRnn : public Seq2SeqModel {
 public:
  explicit Seq2SeqRnn(const Seq2SeqRnnConfig& config, Generator& generator = default_generator());

  /// What a decoder reads of the sources.
  struct Memory {
    Tensor states;  // [source rows, d_model]
    Tensor keys;    // the same, projected
    Tensor first;   // [1, sequences, d_model]: the hidden state that the decoder begins from
  };
  Memory encode(const Tokens& source) const;

  Tensor forward(const Tokens& source, const Tokens& target) const override;
  std::unique_ptr<StepDecoder> start(const Tokens& source, int64_t hypotheses) const override;
  int64_t target_vocabulary() const override { return config_.target_vocabulary; }

  /// States of the decoder's two parts.
  struct DecoderState {
    RecurrentState query, rest;
  };
  /// Logits of target rows; `state` becomes what comes after them. cross: the target's queries with the
  /// source's keys.
  Tensor decode(const Tensor& ids, const Segments& target, const Memory& memory, const Segments& cross,
                DecoderState& state) const;

  const Seq2SeqRnnConfig& config() const { return config_; }
  void visit(Visitor& v) override;
  std::string describe() const override;

  Embedding src_embedding, tgt_embedding;
  Recurrent encoder;
  Linear bridge;
  Recurrent query_rnn;
  AdditiveAttention attention;
  std::unique_ptr<Recurrent> decoder;  // null with a single layer
  Linear generator;

 private:
  Tensor drop(const Tensor& x) const;

  Seq2SeqRnnConfig config_;
};

}  // namespace heed::nn
