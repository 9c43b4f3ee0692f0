// Decoding one token at a time without computing the past again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heed/core/base/memory/pooled_vector.h>
#include <heed/nn/attention/key_value_cache.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {

/// The keys and values of a decoder's past, for several hypotheses that grow together: all have the same
/// length. Each step equals the last row of a full forward over the hypothesis so far. Hold a NoGrad while
/// using it.
class DecoderCache final : public StepDecoder {
 public:
  /// `hypotheses` rows for each source sequence, those of one source next to each other. The model and its
  /// parameters must not change while the cache is used.
  DecoderCache(const Transformer& model, const Tensor& memory, const Segments& source,
               int64_t hypotheses = 1);

  /// Hypotheses that are still followed.
  int64_t rows() const override { return static_cast<int64_t>(source_of_.size()); }
  /// Tokens seen.
  int64_t length() const { return past_.max_length(); }

  /// Appends one token to each hypothesis (i64 [rows]); returns the logits of the next, [rows, vocabulary].
  Tensor step(const Tensor& ids) override;

  /// Hypothesis i becomes a copy of hypothesis parents[i]; fewer parents than rows drop the others.
  /// IndexError for a parent outside [0, rows).
  void select(std::span<const int64_t> parents) override;

 private:
  const Transformer& model_;
  Segments source_;
  PooledVector<int64_t> source_of_;  // the source sequence of each hypothesis
  Segments cross_;                   // of each hypothesis: one query, the keys of its source
  Segments queries_;                 // one of each hypothesis
  PooledVector<Memory> memory_;      // of each layer
  KeyValueCache past_;
};

}  // namespace heed::nn
