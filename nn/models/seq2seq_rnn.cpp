#include <cmath>

#include <heed/core/additive_attention.h>
#include <heed/core/base/memory/pooled_vector.h>
#include <heed/core/ops.h>
#include <heed/nn/layers/dropout.h>
#include <heed/nn/models/seq2seq_rnn.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

const Seq2SeqRnnConfig& checked(const Seq2SeqRnnConfig& config) {
  config.check();
  return config;
}

const char* cell_name(CellKind cell) { return cell == CellKind::lstm ? "LSTM" : "GRU"; }

/// The decoder one token at a time.
class RnnDecoder final : public StepDecoder {
 public:
  RnnDecoder(const Seq2SeqRnn& model, const Tokens& source, int64_t hypotheses)
      : model_(model), memory_(model.encode(source)), source_(source.segments) {
    HEED_CHECK(hypotheses > 0, ConfigError, "decode: hypotheses must be positive, got ", hypotheses);
    PooledVector<int64_t> source_of;
    for (int64_t sequence = 0; sequence < source_.count(); ++sequence)
      source_of.insert(source_of.end(), static_cast<size_t>(hypotheses), sequence);
    state_.query.hidden = index_select(memory_.first, 1, rows_of(source_of));
    follow(std::move(source_of));
  }

  int64_t rows() const override { return static_cast<int64_t>(source_of_.size()); }

  Tensor step(const Tensor& ids) override {
    HEED_CHECK(!grad_enabled(), StateError, "Seq2SeqRnn: hold a NoGrad while decoding");
    HEED_CHECK(ids.shape() == Shape{rows()}, ShapeError, "Seq2SeqRnn: ids are ", ids.shape(), ", expected [",
               rows(), "]");
    return model_.decode(ids, queries_, memory_, cross_, state_);
  }

  void select(std::span<const int64_t> parents) override {
    PooledVector<int64_t> source_of;
    for (const int64_t parent : parents) {
      HEED_CHECK(parent >= 0 && parent < rows(), IndexError, "Seq2SeqRnn: parent ", parent, " is not in [0, ",
                 rows(), ")");
      source_of.push_back(source_of_[static_cast<size_t>(parent)]);
    }
    const Tensor index = rows_of(parents);
    for (RecurrentState* state : {&state_.query, &state_.rest})
      for (Tensor* part : {&state->hidden, &state->cell})
        if (part->defined()) *part = index_select(*part, 1, index);
    follow(std::move(source_of));
  }

 private:
  Tensor rows_of(std::span<const int64_t> rows) const {
    return tensor(rows, {static_cast<int64_t>(rows.size())}, memory_.states.device());
  }
  void follow(PooledVector<int64_t> source_of) {
    source_of_ = std::move(source_of);
    cross_ = source_segments(source_, source_of_);
    queries_ = Segments::dense(rows(), 1);
  }

  const Seq2SeqRnn& model_;
  Seq2SeqRnn::Memory memory_;
  Segments source_, queries_, cross_;
  PooledVector<int64_t> source_of_;
  Seq2SeqRnn::DecoderState state_;
};

}  // namespace

AdditiveAttention::AdditiveAttention(int64_t query_width, int64_t key_width, int64_t hidden,
                                     Generator& generator)
    : query(query_width, hidden, false, generator), key(key_width, hidden, true, generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  score = make_parameter({hidden}, [&](const Tensor& x) { uniform_(x, -bound, bound, generator); });
}

Tensor AdditiveAttention::operator()(const Tensor& x, const Tensor& keys, const Tensor& memory,
                                     const Segments& segments) const {
  return additive_attention(query(x), keys, score, memory, segments, name);
}

void AdditiveAttention::visit(Visitor& v) {
  v("query", query);
  v("key", key);
  v("score", score);
}

std::string AdditiveAttention::describe() const {
  return concat("AdditiveAttention(", query.weight.size(1), ", ", key.weight.size(1), ", hidden ",
                score.size(0), ")");
}

void Seq2SeqRnnConfig::check() const {
  const auto positive = [](int64_t value, const char* what) {
    HEED_CHECK(value > 0, ConfigError, "Seq2SeqRnn: ", what, " must be positive, got ", value);
  };
  positive(source_vocabulary, "source_vocabulary");
  positive(target_vocabulary, "target_vocabulary");
  positive(d_model, "d_model");
  positive(encoder_layers, "encoder_layers");
  positive(decoder_layers, "decoder_layers");
  HEED_CHECK(d_model % 2 == 0, ConfigError, "Seq2SeqRnn: d_model = ", d_model,
             " is odd; each direction of the encoder has half of it");
  check_dropout_rate(dropout, "Seq2SeqRnn");
}

Seq2SeqRnn::Seq2SeqRnn(const Seq2SeqRnnConfig& config, Generator& random)
    : src_embedding(checked(config).source_vocabulary, config.d_model, random),
      tgt_embedding(config.target_vocabulary, config.d_model, random),
      encoder(config.cell, config.d_model, config.d_model / 2,
              {.layers = config.encoder_layers, .bidirectional = true, .dropout = config.dropout}, random),
      bridge(config.d_model, config.d_model, true, random),
      query_rnn(config.cell, config.d_model, config.d_model, {}, random),
      attention(config.d_model, config.d_model, config.d_model, random),
      generator(config.decoder_layers > 1 ? config.d_model : 2 * config.d_model, config.target_vocabulary,
                true, random),
      config_(config) {
  attention.name = "decoder.attention";
  if (config.decoder_layers > 1)
    decoder = std::make_unique<Recurrent>(
        config.cell, 2 * config.d_model, config.d_model,
        RecurrentConfig{.layers = config.decoder_layers - 1, .dropout = config.dropout}, random);
}

Tensor Seq2SeqRnn::drop(const Tensor& x) const { return dropout(x, {.p = training() ? config_.dropout : 0}); }

Seq2SeqRnn::Memory Seq2SeqRnn::encode(const Tokens& source) const {
  const RecurrentResult result = encoder(drop(src_embedding(source.ids)), source.segments);
  // Of the last layer: forward after the last token, backward after the first.
  const int64_t last = result.state.hidden.size(0) - 1;
  const Tensor ends = cat({result.state.hidden.select(0, last - 1), result.state.hidden.select(0, last)}, -1);
  const Tensor states = drop(result.output);
  return {states, attention.project_keys(states), tanh(bridge(ends)).unsqueeze(0)};
}

Tensor Seq2SeqRnn::decode(const Tensor& ids, const Segments& target, const Memory& memory,
                          const Segments& cross, DecoderState& state) const {
  const RecurrentResult asked = query_rnn(drop(tgt_embedding(ids)), target, state.query);
  state.query = asked.state;
  const Tensor states = drop(asked.output);
  Tensor x = cat({states, attention(states, memory.keys, memory.states, cross)}, -1);
  if (decoder) {
    const RecurrentResult read = (*decoder)(x, target, state.rest);
    state.rest = read.state;
    x = drop(read.output);
  }
  return generator(x);
}

Tensor Seq2SeqRnn::forward(const Tokens& source, const Tokens& target) const {
  const Memory memory = encode(source);
  DecoderState state{.query = {.hidden = memory.first}, .rest = {}};
  return decode(target.ids, target.segments, memory, Segments::cross(target.segments, source.segments),
                state);
}

std::unique_ptr<StepDecoder> Seq2SeqRnn::start(const Tokens& source, int64_t hypotheses) const {
  return std::make_unique<RnnDecoder>(*this, source, hypotheses);
}

void Seq2SeqRnn::visit(Visitor& v) {
  v("src_embedding", src_embedding);
  v("tgt_embedding", tgt_embedding);
  v("encoder", encoder);
  v("bridge", bridge);
  v("query_rnn", query_rnn);
  v("attention", attention);
  if (decoder) v("decoder", *decoder);
  v("generator", generator);
}

std::string Seq2SeqRnn::describe() const {
  return concat("Seq2SeqRnn(", cell_name(config_.cell), ", ", config_.d_model, ", ", config_.encoder_layers,
                "+", config_.decoder_layers, " layers, additive attention)");
}

}  // namespace heed::nn
