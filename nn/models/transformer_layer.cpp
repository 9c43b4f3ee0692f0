#include <heed/nn/models/transformer_layer.h>

namespace heed::nn {
namespace {

MultiHeadAttentionOptions self_attention_options(const LayerConfig& config) {
  return {.dropout = config.attention_dropout,
          .qkv_bias = config.qkv_bias,
          .out_bias = config.out_bias,
          .position = config.position,
          .relative_limit = config.relative_limit,
          .relative_buckets = config.relative_buckets};
}

MultiHeadAttentionOptions causal_attention_options(const LayerConfig& config) {
  MultiHeadAttentionOptions options = self_attention_options(config);
  options.causal_buckets = true;
  return options;
}

// Distances between source and target positions mean nothing to cross-attention.
MultiHeadAttentionOptions cross_attention_options(const LayerConfig& config) {
  MultiHeadAttentionOptions options = self_attention_options(config);
  options.position = PositionKind::none;
  return options;
}

FeedForwardOptions feed_forward_options(const LayerConfig& config) {
  return {.kind = config.activation, .dropout = config.activation_dropout, .bias = config.feed_forward_bias};
}

}  // namespace

EncoderLayer::EncoderLayer(const LayerConfig& config, Generator& generator)
    : placement(config.norm),
      residual_dropout(config.residual_dropout),
      self_attn(config.d_model, config.head_layout(), self_attention_options(config), generator),
      feed_forward(config.d_model, config.d_ff, feed_forward_options(config), generator),
      norm1(config.norm_kind, config.d_model, config.eps),
      norm2(config.norm_kind, config.d_model, config.eps) {
  check_dropout_rate(residual_dropout, "EncoderLayer");
}

Tensor EncoderLayer::operator()(const Tensor& x, const Segments& segments, const AttentionCall& call) const {
  if (placement == NormPlacement::pre) {
    const ResidualStream out = advance({x, norm1(x)}, segments, call);
    return heed::residual_dropout(out.sum, out.branch, dropout());
  }
  const Tensor a = norm1.post(x, self_attn.self(x, segments, call), dropout());
  return norm2.post(a, feed_forward(a), dropout());
}

ResidualStream EncoderLayer::advance(const ResidualNorm& in, const Segments& segments,
                                     const AttentionCall& call) const {
  const ResidualNorm a = norm2(in.sum, self_attn.self(in.normed, segments, call), dropout());
  return {a.sum, feed_forward(a.normed)};
}

void EncoderLayer::visit(Visitor& v) {
  v("self_attn", self_attn);
  v.unnamed(feed_forward);
  v("norm1", norm1);
  v("norm2", norm2);
}

std::string EncoderLayer::describe() const { return concat("EncoderLayer(", name(placement), "-norm)"); }

DecoderLayer::DecoderLayer(const LayerConfig& config, Generator& generator)
    : placement(config.norm),
      residual_dropout(config.residual_dropout),
      self_attn(config.d_model, config.head_layout(), causal_attention_options(config), generator),
      multihead_attn(config.d_model, config.head_layout(), cross_attention_options(config), generator),
      feed_forward(config.d_model, config.d_ff, feed_forward_options(config), generator),
      norm1(config.norm_kind, config.d_model, config.eps),
      norm2(config.norm_kind, config.d_model, config.eps),
      norm3(config.norm_kind, config.d_model, config.eps) {
  check_dropout_rate(residual_dropout, "DecoderLayer");
}

Tensor DecoderLayer::cross(const Tensor& x, const Memory& memory, const Segments& segments,
                           const AttentionCall& call) const {
  const Tensor q = multihead_attn.project_q(x);
  const Tensor kv = memory.key_value.defined() ? memory.key_value : multihead_attn.project_kv(memory.states);
  return multihead_attn.attend(q, kv, segments, call);
}

Tensor DecoderLayer::operator()(const Tensor& x, const Segments& self_segments, const Memory& memory,
                                const Segments& cross_segments, const AttentionCall& self_call,
                                const AttentionCall& cross_call) const {
  if (placement == NormPlacement::pre) {
    const ResidualStream out =
        advance({x, norm1(x)}, self_segments, memory, cross_segments, self_call, cross_call);
    return heed::residual_dropout(out.sum, out.branch, dropout());
  }
  const Tensor a = norm1.post(x, self_attn.self(x, self_segments, self_call), dropout());
  const Tensor b = norm2.post(a, cross(a, memory, cross_segments, cross_call), dropout());
  return norm3.post(b, feed_forward(b), dropout());
}

ResidualStream DecoderLayer::advance(const ResidualNorm& in, const Segments& self_segments,
                                     const Memory& memory, const Segments& cross_segments,
                                     const AttentionCall& self_call, const AttentionCall& cross_call) const {
  const ResidualNorm a = norm2(in.sum, self_attn.self(in.normed, self_segments, self_call), dropout());
  const ResidualNorm b = norm3(a.sum, cross(a.normed, memory, cross_segments, cross_call), dropout());
  return {b.sum, feed_forward(b.normed)};
}

void DecoderLayer::visit(Visitor& v) {
  v("self_attn", self_attn);
  v("multihead_attn", multihead_attn);
  v.unnamed(feed_forward);
  v("norm1", norm1);
  v("norm2", norm2);
  v("norm3", norm3);
}

std::string DecoderLayer::describe() const { return concat("DecoderLayer(", name(placement), "-norm)"); }

}  // namespace heed::nn
