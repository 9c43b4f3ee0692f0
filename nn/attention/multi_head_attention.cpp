#include <heed/nn/attention/key_value_cache.h>
#include <heed/nn/attention/multi_head_attention.h>
#include <heed/nn/init.h>
#include <heed/nn/layers/dropout.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

HeadLayout HeadLayout::of(int64_t d_model) const {
  HeadLayout filled = *this;
  if (key_heads == 0) filled.key_heads = heads;
  HEED_CHECK(heads > 0 && (width > 0 || d_model % heads == 0), ConfigError,
             "MultiHeadAttention: d_model = ", d_model, " is not divisible by heads = ", heads);
  HEED_CHECK(filled.key_heads > 0 && heads % filled.key_heads == 0, ConfigError,
             "MultiHeadAttention: key_heads = ", key_heads, " does not divide heads = ", heads);
  HEED_CHECK(width >= 0, ConfigError, "MultiHeadAttention: the width of a head is ", width);
  if (width == 0) filled.width = d_model / heads;
  return filled;
}

MultiHeadAttention::MultiHeadAttention(int64_t d_model, const HeadLayout& heads,
                                       const MultiHeadAttentionOptions& options, Generator& generator)
    : d_model(d_model),
      layout(heads.of(d_model)),
      options(options),
      out_proj(layout.query_columns(), d_model, options.out_bias, generator) {
  check_dropout_rate(options.dropout, "MultiHeadAttention");
  const auto zero = [](const Tensor& x) { x.zero_(); };
  const int64_t outputs = layout.query_columns() + 2 * layout.key_columns();
  in_proj_weight = make_parameter(
      {outputs, d_model}, [&](const Tensor& x) { initialize(x, Initializer::xavier_uniform, generator); });
  if (options.qkv_bias) in_proj_bias = make_parameter({outputs}, zero);
  if (options.out_bias) out_proj.bias = make_parameter({d_model}, zero);
  if (options.position == PositionKind::relative)
    relative_bias = make_parameter({layout.heads, 2 * options.relative_limit + 1}, zero);
  if (options.position == PositionKind::t5) {
    relative_bias = make_parameter({options.relative_buckets, layout.heads}, zero);
    if (!ShapesOnly::active())
      buckets_ = t5_buckets(options.relative_limit, options.relative_buckets, options.causal_buckets);
  }
  if (options.position == PositionKind::alibi && !ShapesOnly::active())
    alibi_slopes_ = alibi_slopes(layout.heads);
}

Tensor MultiHeadAttention::self(const Tensor& x, const Segments& segments, const AttentionCall& call) const {
  Tensor qkv = project_qkv(x);
  if (call.rotation.table.defined())
    qkv = rotary(qkv, call.rotation.positions, call.rotation.table,
                 {.heads = layout.heads + 2 * layout.key_heads,
                  .rotated_heads = layout.heads + layout.key_heads,
                  .pairing = call.rotation.pairing});
  if (!call.cache) return join(attention_qkv(qkv, segments, attention_options(call)));
  const int64_t queries = layout.query_columns();
  const Tensor past = call.cache->append(call.layer, qkv.slice(1, queries, qkv.size(1)));
  return attend(qkv.slice(1, 0, queries), past, call.cache->segments(), call);
}

Tensor MultiHeadAttention::cross(const Tensor& x, const Tensor& memory, const Segments& segments,
                                 const AttentionCall& call) const {
  return attend(project_q(x), project_kv(memory), segments, call);
}

Tensor MultiHeadAttention::attend(const Tensor& q, const Tensor& kv, const Segments& segments,
                                  const AttentionCall& call) const {
  return join(attention_kv(q, kv, segments, attention_options(call)));
}

Tensor MultiHeadAttention::join(const Tensor& heads) const {
  if (!head_mask.defined()) return out_proj(heads);
  const Tensor factors = head_mask.to(heads.device()).to(heads.dtype()).view({layout.heads, 1});
  return out_proj((heads.reshape({-1, layout.heads, layout.width}) * factors).reshape(heads.shape()));
}

Tensor MultiHeadAttention::project_qkv(const Tensor& x) const {
  return linear(x, in_proj_weight, in_proj_bias);
}
Tensor MultiHeadAttention::project_q(const Tensor& x) const { return project(x, 0, layout.query_columns()); }
Tensor MultiHeadAttention::project_kv(const Tensor& memory) const {
  return project(memory, layout.query_columns(), layout.query_columns() + 2 * layout.key_columns());
}

// With the outputs [begin, end) of the stacked projections.
Tensor MultiHeadAttention::project(const Tensor& x, int64_t begin, int64_t end) const {
  return linear(x, in_proj_weight.slice(0, begin, end),
                in_proj_bias.defined() ? in_proj_bias.slice(0, begin, end) : Tensor());
}

Tensor MultiHeadAttention::relative() const {
  if (!buckets_.defined()) return relative_bias;
  if (buckets_.device() != relative_bias.device()) buckets_ = buckets_.to(relative_bias.device());
  return index_select(relative_bias, buckets_).transpose(0, 1);
}

AttentionOptions MultiHeadAttention::attention_options(const AttentionCall& call) const {
  if (alibi_slopes_.defined() && alibi_slopes_.device() != in_proj_weight.device())
    alibi_slopes_ = alibi_slopes_.to(in_proj_weight.device());
  return {.heads = layout.heads,
          .key_heads = layout.key_heads,
          .visibility = call.visibility,
          .blocks = call.blocks,
          .mask = call.mask,
          .alibi_slopes = alibi_slopes_,
          .relative = relative(),
          .dropout = training() ? options.dropout : 0,
          .name = name};
}

void MultiHeadAttention::visit(Visitor& v) {
  v("in_proj_weight", in_proj_weight);
  v("in_proj_bias", in_proj_bias);
  v("out_proj", out_proj);
  v("relative_bias", relative_bias);
}

std::string MultiHeadAttention::describe() const {
  return concat("MultiHeadAttention(", d_model, ", heads ", layout.heads,
                layout.key_heads == layout.heads ? "" : concat(", key heads ", layout.key_heads),
                ", dropout ", options.dropout, ")");
}

}  // namespace heed::nn
