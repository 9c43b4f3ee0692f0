// What weights of attention say in numbers: how wide a head looks, how far, at what, and which heads do the
// same.
//
// Weights are [..., queries, keys] as an AttentionRecord gives them: each row sums to 1, what a mask hides is
// 0. Leading axes are as one likes, such as [sequences, heads]. Results are f64 on the CPU. ShapeError for
// shapes that do not fit.
#pragma once

#include <heed/core/tensor.h>

namespace heed::nn {

/// -Σ w log2 w of each row, [..., queries], in bits: 0 where a query looks at one key, log2 n where it looks
/// at n alike.
Tensor attention_entropy(const Tensor& weights);

/// Σ w |key - query| of each row, [..., queries]: places are those of the sequences, from 0 on.
Tensor attention_distance(const Tensor& weights);

/// The weight that each row has on the keys of a pattern, bool [queries, keys], averaged over the rows in
/// which it has a key: [...]. NaN where it has none at all. Of weights [sequences, heads, queries, keys] each
/// sequence may have a pattern of its own, [sequences, queries, keys].
Tensor attention_share(const Tensor& weights, const Tensor& pattern);

// Patterns, bool [queries, keys].
/// key = query + offset: -1 is the token before, 1 the next.
Tensor diagonal_pattern(int64_t queries, int64_t keys, int64_t offset);
/// key = place - query: what is read backwards.
Tensor mirror_pattern(int64_t queries, int64_t keys, int64_t place);
/// One key for all queries.
Tensor key_pattern(int64_t queries, int64_t keys, int64_t key);
/// The tokens that came after earlier occurrences of the query's own, bool [sequences, tokens, tokens] of ids
/// [sequences, tokens]: what an induction head looks at (Olsson et al., arXiv 2209.11895: prefix matching).
/// ShapeError.
Tensor induction_pattern(const Tensor& ids);

/// How alike the heads' weights are, [heads, heads], of weights [sequences, heads, queries, keys]: 1 minus
/// the Jensen-Shannon divergence of two heads' rows in bits, averaged over all rows (arXiv 1906.04341 draws
/// heads by it). 1: the same; 0: never at the same key.
Tensor head_similarity(const Tensor& weights);

/// How much of what a head does follows from places alone, [heads], of weights [sequences, heads, queries,
/// keys] of sequences of one length: the part of the weights' deviation from even ones that is the same in
/// all sequences, as R² of an analysis of variance. 1: the same map for every sequence; 0 too where a head
/// looks evenly at all that it sees. Of few sequences it says little: of one it is 1.
Tensor explained_by_place(const Tensor& weights);
/// The same for symbols: the part that is the same wherever the same symbol asks the same symbol. query_ids,
/// i64 [sequences, queries], and key_ids, [sequences, keys].
Tensor explained_by_symbols(const Tensor& weights, const Tensor& query_ids, const Tensor& key_ids);

/// Attention rollout (Abnar and Zuidema, arXiv 2005.00928): how much of each input token the states of each
/// place are mixed from, if a layer hands on half of what it got and half of what its heads, on average,
/// attended to. layers: the weights of each layer's self-attention, [heads, tokens, tokens], the first layer
/// first → [tokens, tokens], whose rows sum to 1. ShapeError, also without layers.
Tensor attention_rollout(TensorList layers);
/// The same through both stacks of a Transformer: of how much of each source token, and then of each target
/// token, the decoder's states are mixed. encoder and decoder: each layer's self-attention; cross: each
/// decoder layer's cross-attention, [heads, targets, sources] → [targets, sources + targets], whose rows sum
/// to 1. Without encoder layers the source's tokens are themselves. ShapeError, also without decoder layers.
Tensor attention_rollout(TensorList encoder, TensorList decoder, TensorList cross);

}  // namespace heed::nn
