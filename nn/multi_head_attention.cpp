#include <heed/nn/dropout.h>
#include <heed/nn/init.h>
#include <heed/nn/multi_head_attention.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

MultiHeadAttention::MultiHeadAttention(int64_t d_model, int64_t heads,
                                       const MultiHeadAttentionOptions& options, Generator& generator)
    : d_model(d_model),
      heads(heads),
      options(options),
      out_proj(d_model, d_model, options.out_bias, generator) {
  HEED_CHECK(heads > 0 && d_model % heads == 0, ConfigError, "MultiHeadAttention: d_model = ", d_model,
             " is not divisible by heads = ", heads);
  check_dropout_rate(options.dropout, "MultiHeadAttention");
  const auto zero = [](const Tensor& x) { x.zero_(); };
  in_proj_weight = make_parameter({3 * d_model, d_model}, [&](const Tensor& x) {
    initialize(x, Initializer::xavier_uniform, generator);
  });
  if (options.qkv_bias) in_proj_bias = make_parameter({3 * d_model}, zero);
  if (options.out_bias) out_proj.bias = make_parameter({d_model}, zero);
  if (options.position == PositionKind::relative)
    relative_bias = make_parameter({heads, 2 * options.relative_limit + 1}, zero);
  if (options.position == PositionKind::alibi && !ShapesOnly::active()) alibi_slopes_ = alibi_slopes(heads);
}

Tensor MultiHeadAttention::self(const Tensor& x, const Segments& segments, const AttentionCall& call) const {
  return out_proj(attention_qkv(project_qkv(x), segments, attention_options(call)));
}

Tensor MultiHeadAttention::cross(const Tensor& x, const Tensor& memory, const Segments& segments,
                                 const AttentionCall& call) const {
  return attend(project_q(x), project_kv(memory), segments, call);
}

Tensor MultiHeadAttention::attend(const Tensor& q, const Tensor& kv, const Segments& segments,
                                  const AttentionCall& call) const {
  return out_proj(attention_kv(q, kv, segments, attention_options(call)));
}

Tensor MultiHeadAttention::project_qkv(const Tensor& x) const {
  return linear(x, in_proj_weight, in_proj_bias, {.keep_packed = true});
}
Tensor MultiHeadAttention::project_q(const Tensor& x) const { return project(x, 0, 1); }
Tensor MultiHeadAttention::project_kv(const Tensor& memory) const { return project(memory, 1, 2); }

// With `count` of the three stacked projections, from number `first` on.
Tensor MultiHeadAttention::project(const Tensor& x, int64_t first, int64_t count) const {
  return linear(x, in_proj_weight, in_proj_bias,
                {.keep_packed = true, .first_output = first * d_model, .outputs = count * d_model});
}

AttentionOptions MultiHeadAttention::attention_options(const AttentionCall& call) const {
  if (alibi_slopes_.defined() && alibi_slopes_.device() != in_proj_weight.device())
    alibi_slopes_ = alibi_slopes_.to(in_proj_weight.device());
  return {.heads = heads,
          .visibility = call.visibility,
          .mask = call.mask,
          .alibi_slopes = alibi_slopes_,
          .relative = relative_bias,
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
  return concat("MultiHeadAttention(", d_model, ", heads ", heads, ", dropout ", options.dropout, ")");
}

}  // namespace heed::nn
