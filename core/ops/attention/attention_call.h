// One call of attention: what its backward and its record need besides the operands. Private to core: not
// installed.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include <heed/core/attention.h>
#include <heed/core/autograd/autograd.h>
#include <heed/kernels/attention.h>

namespace heed {

struct AttentionContext {
  Segments segments;
  int64_t query_rows, key_rows;
  int64_t heads, key_heads, width;
  double scale, logit_cap;
  Visibility visibility;
  BlockPattern blocks;
  Saved bias, mask, alibi_slopes, relative;  // undefined where there is none
  std::array<int64_t, 4> bias_stride, mask_stride;

  /// The kernels' view of the call with these operands, on a device. AutogradError if a bias was written to
  /// since.
  template <class T>
  kernels::AttentionScores<T> scores(const kernels::HeadsView<const T>& q,
                                     const kernels::HeadsView<const T>& k, Device device) const {
    return {.q = q,
            .k = k,
            .segments = segments.view(device),
            .query_rows = query_rows,
            .key_rows = key_rows,
            .heads = heads,
            .key_heads = key_heads,
            .width = width,
            .scale = scale,
            .logit_cap = logit_cap,
            .visibility = {visibility, blocks.view(device)},
            .bias = bias_view<T>()};
  }

 private:
  template <class T>
  kernels::AttentionBias<T> bias_view() const {
    const Tensor added = *bias, visible = *mask, slopes = *alibi_slopes, table = *relative;
    kernels::AttentionBias<T> view{
        .bias = added.defined() ? added.data<T>() : nullptr,
        .bias_stride = {},
        .mask = visible.defined() ? visible.data<bool>() : nullptr,
        .mask_stride = {},
        .alibi_slopes = slopes.defined() ? slopes.data<float>() : nullptr,
        .relative = table.defined() ? table.data<T>() : nullptr,
        .relative_limit = table.defined() ? static_cast<int32_t>(table.size(-1) / 2) : 0};
    std::copy(bias_stride.begin(), bias_stride.end(), view.bias_stride);
    std::copy(mask_stride.begin(), mask_stride.end(), view.mask_stride);
    return view;
  }
};

/// Attention by its definition, one sequence after the other, where a device has no kernel. q [rows, heads *
/// width], k and v [rows, key_heads * width]; all checked. Recorded.
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionContext& call,
                       const AttentionOptions& options);

/// The scores of one sequence, likewise.
Tensor plain_scores(const Tensor& q, const Tensor& k, const AttentionContext& call,
                    const AttentionOptions& options, int64_t sequence);

/// Heads of `width` columns in a matrix [.., columns], from one column on; all null for an undefined matrix.
template <class T, class Element = T>
kernels::HeadsView<Element> heads_view(const Tensor& matrix, int64_t column, int64_t width) {
  if (!matrix.defined()) return {nullptr, 0, 0};
  return {matrix.data<T>() + column, matrix.size(-1), width};
}

/// What an AttentionRecord keeps of a call.
struct AttentionRecord::Call {
  std::string name;
  AttentionContext call;
  Saved q, k;
  int64_t q_column, k_column;
  Tensor lse;
  Node::Edge q_edge, k_edge, bias_edge, relative_edge;  // where gradients go, if the call was recorded
  Tensor weights = {};  // instead of all that: weights of one head, [sequences, queries, keys] and more
};

}  // namespace heed
