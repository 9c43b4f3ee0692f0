#include <cmath>

#include <heed/nn/decoding/decoder_cache.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {

NormPlacement parse_norm(const std::string& text) {
  if (text == "post") return NormPlacement::post;
  if (text == "pre") return NormPlacement::pre;
  throw ConfigError(concat("unknown norm placement '", text, "'; expected post or pre"));
}

const char* name(NormPlacement norm) { return norm == NormPlacement::post ? "post" : "pre"; }

void TransformerConfig::check() const {
  const auto positive = [](int64_t value, const char* what) {
    HEED_CHECK(value > 0, ConfigError, "Transformer: ", what, " must be positive, got ", value);
  };
  positive(source_vocabulary, "source_vocabulary");
  positive(target_vocabulary, "target_vocabulary");
  positive(d_model, "d_model");
  positive(heads, "heads");
  positive(d_ff, "d_ff");
  HEED_CHECK(encoder_layers >= 0 && decoder_layers >= 0, ConfigError, "Transformer: ", encoder_layers,
             " encoder and ", decoder_layers, " decoder layers");
  HEED_CHECK(head_width > 0 || d_model % heads == 0, ConfigError, "Transformer: d_model = ", d_model,
             " is not divisible by heads = ", heads);
  HEED_CHECK(!share_embeddings || source_vocabulary == target_vocabulary, ConfigError,
             "Transformer: shared embeddings need equal vocabularies, got ", source_vocabulary, " and ",
             target_vocabulary);
  if (position == PositionKind::rotary) rotary.check(head_layout().of(d_model).width);
  check_dropout_rate(embedding_dropout, "Transformer");
}

// ---- stacks
// -------------------------------------------------------------------------------------------------------

namespace {

// The layers of an encoder or decoder and its final norm: post-norm layers by apply(number, layer, states),
// pre-norm ones by advance(number, layer, stream). There each norm also adds the branch before it: residual,
// dropout and norm are one pass.
template <class Stack, class Apply, class Advance>
Tensor run_stack(const Stack& stack, const Tensor& x, const Apply& apply, const Advance& advance) {
  const auto& layers = stack.layers;
  const Norm* const last = stack.norm.get();
  if (layers.empty()) return last ? (*last)(x) : x;
  if (layers.front()->placement == NormPlacement::post) {
    Tensor states = x;
    for (size_t i = 0; i < layers.size(); ++i) states = apply(static_cast<int64_t>(i), *layers[i], states);
    return last ? (*last)(states) : states;
  }
  const DropoutOptions dropout{.p = stack.training() ? layers.front()->residual_dropout : 0};
  ResidualNorm in{x, layers.front()->norm1(x)};
  for (size_t i = 0;; ++i) {
    const ResidualStream out = advance(static_cast<int64_t>(i), *layers[i], in);
    const Norm* const next = i + 1 < layers.size() ? &layers[i + 1]->norm1 : last;
    if (!next) return residual_dropout(out.sum, out.branch, dropout);
    in = (*next)(out.sum, out.branch, dropout);
    if (i + 1 == layers.size()) return in.normed;
  }
}

}  // namespace

Encoder::Encoder(const LayerConfig& config, int64_t count, bool final_norm, Generator& generator) {
  for (int64_t i = 0; i < count; ++i) layers.push_back(std::make_unique<EncoderLayer>(config, generator));
  if (final_norm) norm = std::make_unique<Norm>(config.norm_kind, config.d_model, config.eps);
}

Tensor Encoder::operator()(const Tensor& x, const Segments& segments, const AttentionCall& call) const {
  AttentionCall of_layer = call;
  return run_stack(
      *this, x,
      [&](int64_t i, const EncoderLayer& layer, const Tensor& states) {
        of_layer.layer = i;
        return layer(states, segments, of_layer);
      },
      [&](int64_t i, const EncoderLayer& layer, const ResidualNorm& in) {
        of_layer.layer = i;
        return layer.advance(in, segments, of_layer);
      });
}

void Encoder::visit(Visitor& v) {
  v("layers", layers);
  if (norm) v("norm", *norm);
}

Decoder::Decoder(const LayerConfig& config, int64_t count, bool final_norm, Generator& generator) {
  for (int64_t i = 0; i < count; ++i) layers.push_back(std::make_unique<DecoderLayer>(config, generator));
  if (final_norm) norm = std::make_unique<Norm>(config.norm_kind, config.d_model, config.eps);
}

Tensor Decoder::operator()(const Tensor& x, const Segments& self_segments, const Tensor& memory,
                           const Segments& cross_segments, const AttentionCall& self_call,
                           const AttentionCall& cross_call) const {
  return (*this)(x, self_segments, PooledVector<Memory>(layers.size(), Memory{memory, {}}), cross_segments,
                 self_call, cross_call);
}

Tensor Decoder::operator()(const Tensor& x, const Segments& self_segments, const PooledVector<Memory>& memory,
                           const Segments& cross_segments, const AttentionCall& self_call,
                           const AttentionCall& cross_call) const {
  AttentionCall of_layer = self_call;
  return run_stack(
      *this, x,
      [&](int64_t i, const DecoderLayer& layer, const Tensor& states) {
        of_layer.layer = i;
        return layer(states, self_segments, memory[static_cast<size_t>(i)], cross_segments, of_layer,
                     cross_call);
      },
      [&](int64_t i, const DecoderLayer& layer, const ResidualNorm& in) {
        of_layer.layer = i;
        return layer.advance(in, self_segments, memory[static_cast<size_t>(i)], cross_segments, of_layer,
                             cross_call);
      });
}

void Decoder::visit(Visitor& v) {
  v("layers", layers);
  if (norm) v("norm", *norm);
}

// ---- the model
// ------------------------------------------------------------------------------------------------------

namespace {

const TransformerConfig& checked(const TransformerConfig& config) {
  config.check();
  return config;
}

}  // namespace

Transformer::Transformer(const TransformerConfig& config, Generator& random)
    : src_embedding(checked(config).source_vocabulary, config.d_model, random,
                    config.first_embedding_deviation()),
      tgt_embedding(config.target_vocabulary, config.d_model, random, config.first_embedding_deviation()),
      position(config.position, config.d_model, config.position_options(), random),
      encoder(config, config.encoder_layers, config.has_final_norm(), random),
      decoder(config, config.decoder_layers, config.has_final_norm(), random),
      output(config.d_model, config.target_vocabulary, true, random),
      config_(config) {
  if (config.share_embeddings) src_embedding.weight = tgt_embedding.weight;
  if (config.tie_generator) output.weight = tgt_embedding.weight;
  for (size_t i = 0; i < encoder.layers.size(); ++i)
    encoder.layers[i]->self_attn.name = concat("encoder.layers.", i, ".self_attn");
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    decoder.layers[i]->self_attn.name = concat("decoder.layers.", i, ".self_attn");
    decoder.layers[i]->multihead_attn.name = concat("decoder.layers.", i, ".multihead_attn");
  }
}

Tensor Transformer::embed(const Embedding& embedding, const Tensor& ids, const Tensor& positions,
                          int64_t length) const {
  const Tensor table = position.table(length, embedding.weight.dtype(), embedding.weight.device());
  return embedding(ids, {.scale = config_.embedding_scale(),
                         .position = table,
                         .position_ids = table.defined() ? positions : Tensor(),
                         .dropout = training() ? config_.embedding_dropout : 0});
}

Tensor Transformer::embed_target(const Tensor& ids, const Tensor& positions, int64_t length) const {
  return embed(tgt_embedding, ids, positions, length);
}

Rotation Transformer::rotation(const Tensor& positions, int64_t length) const {
  const Tensor& weight = tgt_embedding.weight;
  return position.rotation(positions, length, weight.dtype(), weight.device());
}

Tensor Transformer::encode(const Tokens& source, const AttentionCall& call) const {
  const Tensor positions = source.row_positions();
  const int64_t length = source.position_end();
  AttentionCall with_positions = call;
  with_positions.rotation = rotation(positions, length);
  return encoder(embed(src_embedding, source.ids, positions, length), source.segments, with_positions);
}

Tensor Transformer::decode(const Tokens& target, const Tensor& memory, const Segments& source_segments,
                           const TransformerCalls& calls) const {
  const Tensor positions = target.row_positions();
  const int64_t length = target.position_end();
  AttentionCall with_positions = calls.target;
  with_positions.rotation = rotation(positions, length);
  return decoder(embed_target(target.ids, positions, length), target.segments, memory,
                 Segments::cross(target.segments, source_segments), with_positions, calls.cross);
}

Tensor Transformer::logits(const Tensor& states) const { return output(states); }

Tensor Transformer::forward(const Tokens& source, const Tokens& target, const TransformerCalls& calls) const {
  return logits(decode(target, encode(source, calls.source), source.segments, calls));
}

std::unique_ptr<StepDecoder> Transformer::start(const Tokens& source, int64_t hypotheses) const {
  return std::make_unique<DecoderCache>(*this, encode(source), source.segments, hypotheses);
}

int64_t Transformer::max_target() const {
  return config_.position == PositionKind::learned ? config_.max_length : Seq2SeqModel::max_target();
}

void Transformer::visit(Visitor& v) {
  v("src_embedding", src_embedding);
  v("tgt_embedding", tgt_embedding);
  v("position", position);
  v("encoder", encoder);
  v("decoder", decoder);
  v("generator", output);
}

std::string Transformer::describe() const {
  return concat("Transformer(", config_.d_model, ", heads ", config_.heads, ", ", config_.encoder_layers, "+",
                config_.decoder_layers, " layers, d_ff ", config_.d_ff, ", ", name(config_.norm), "-norm)");
}

}  // namespace heed::nn
