#include <cmath>
#include <numbers>
#include <vector>

#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/kernels/embedding.h>

namespace heed::composed {
namespace {

ReduceOptions over_last_axis() { return {.axes = {-1}, .keep = true}; }

Tensor scaled(const Tensor& x, const Tensor& weight) { return weight.defined() ? x * weight : x; }
Tensor shifted(const Tensor& x, const Tensor& bias) { return bias.defined() ? x + bias : x; }

Tensor where_equal(const Tensor& x, double value, double then) { return where(equal(x, value), then, x); }

}  // namespace

Tensor activation(const Tensor& x, Activation which) {
  switch (which) {
    case Activation::none:
      break;
    case Activation::relu:
      return where(greater(x.detach(), 0), x, 0);
    case Activation::gelu:
      return x * 0.5 * (erf(x * (1 / std::numbers::sqrt2)) + 1.0);
    case Activation::gelu_tanh: {
      const double factor = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
      return x * 0.5 * (tanh((x + x * x * x * 0.044715) * factor) + 1.0);
    }
    case Activation::silu:
      return x * sigmoid(x);
  }
  return x;
}

Tensor softmax(const Tensor& x, bool log) {
  if (x.numel() == 0) return x * 1.0;
  // A row of -inf has a maximum of -inf and a sum of 0; its softmax is 0.
  const Tensor moved = x - where_equal(max(x, over_last_axis()).detach(), -HUGE_VAL, 0);
  const Tensor terms = exp(moved), total = where_equal(sum(terms, over_last_axis()), 0, 1);
  return log ? moved - heed::log(total) : terms / total;
}

Tensor norm(NormKind kind, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (x.size(-1) == 0) return shifted(scaled(x * 1.0, weight), bias);  // there is no mean
  const Tensor centred = kind == NormKind::layer ? x - mean(x, over_last_axis()) : x;
  const Tensor y = centred * rsqrt(mean(square(centred), over_last_axis()) + eps);
  return shifted(scaled(y, weight), bias);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options) {
  const Tensor y = shifted(matmul(x, weight.transpose(0, 1)), bias);
  return dropout(composed::activation(y, options.activation),
                 {.p = options.dropout, .generator = options.generator});
}

Tensor rotary(const Tensor& x, const Tensor& positions, const Tensor& table, const RotaryOptions& options) {
  const int64_t rows = positions.numel(), heads = options.heads, width = x.size(-1) / heads,
                rotated = table.shape()[2],
                rotated_heads = options.rotated_heads == 0 ? heads : options.rotated_heads;
  std::vector<int64_t> partner;
  for (int64_t c = 0; c < rotated; ++c)
    partner.push_back(options.pairing == RotaryPairing::half ? (c + rotated / 2) % rotated : c ^ 1);
  const Tensor all = x.reshape({rows, heads, width}), turned_heads = all.slice(1, 0, rotated_heads),
               columns = turned_heads.slice(2, 0, rotated),
               partners = index_select(columns, -1, tensor(partner, {rotated}, x.device())),
               factors = index_select(table, positions.flatten()).to(x.dtype());
  const auto factor = [&](int64_t i) { return factors.select(1, i).unsqueeze(1); };
  const Tensor turned = columns * factor(0) + partners * factor(1);
  return cat({cat({turned, turned_heads.slice(2, rotated, width)}, 2), all.slice(1, rotated_heads, heads)}, 1)
      .reshape(x.shape());
}

Tensor embedding(const Tensor& ids, const Tensor& weight, const EmbeddingOptions& options) {
  const auto is = [&](int64_t id) { return equal(ids, static_cast<double>(id)).unsqueeze(-1); };
  Tensor y = index_select(weight, ids);
  if (options.padding_id != kNoToken) y = where(is(options.padding_id), y.detach(), y);
  y = y * options.scale;
  if (options.position.defined()) {
    const Tensor added = index_select(options.position, options.position_ids);
    y = where(is(kNoToken), y, y + added);
  }
  return dropout(y, {.p = options.dropout, .generator = options.generator});
}

}  // namespace heed::composed
