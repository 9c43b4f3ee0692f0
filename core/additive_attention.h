// Additive attention: scores by a small network instead of a product.
#pragma once

#include <string_view>

#include <heed/core/segments.h>
#include <heed/core/tensor.h>

namespace heed {

/// Bahdanau et al., arXiv 1409.0473: the weights of a query's keys are the softmax of score · tanh(q + k),
/// the result is the sum of their values by weight. q [query_rows, width], k [key_rows, width], score
/// [width], values [key_rows, columns] → [query_rows, columns]; the segments say which rows belong together.
/// A query without keys gives zeros, as do rows outside the segments. The tanh of each query, key and column
/// is computed some sequences at a time, and again by the backward: only the weights are kept. An
/// AttentionRecord lists the call under `name`; its weights have no gradient. ShapeError; StateError for
/// segments that the device alone knows, and for keys that several sequences share if a gradient is wanted.
[[nodiscard]] Tensor additive_attention(const Tensor& q, const Tensor& k, const Tensor& score,
                                        const Tensor& values, const Segments& segments,
                                        std::string_view name = {});

}  // namespace heed
