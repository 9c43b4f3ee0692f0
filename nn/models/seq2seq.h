// Models from sequences of tokens to sequences of tokens, as training and searching see them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include <heed/nn/decoding/tokens.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// Decoding one token at a time, for several hypotheses that grow together: all have the same length. Hold a
/// NoGrad while using it; the model must not change meanwhile.
class StepDecoder {
 public:
  virtual ~StepDecoder() = default;

  /// Hypotheses that are still followed.
  virtual int64_t rows() const = 0;
  /// Appends one token to each hypothesis (i64 [rows]); returns the logits of the next, [rows, vocabulary].
  virtual Tensor step(const Tensor& ids) = 0;
  /// Hypothesis i becomes a copy of hypothesis parents[i]; fewer parents than rows drop the others.
  /// IndexError for a parent outside [0, rows).
  virtual void select(std::span<const int64_t> parents) = 0;
};

class Seq2SeqModel : public Module {
 public:
  /// Logits [target rows, target vocabulary] for the token after each target token.
  virtual Tensor forward(const Tokens& source, const Tokens& target) const = 0;
  /// A decoder of `hypotheses` rows for each source, those of one source next to each other.
  virtual std::unique_ptr<StepDecoder> start(const Tokens& source, int64_t hypotheses) const = 0;
  virtual int64_t target_vocabulary() const = 0;
  /// Tokens of a target, at most.
  virtual int64_t max_target() const { return std::numeric_limits<int64_t>::max(); }
};

/// For each hypothesis, of that source sequence, a query of one row and the source's keys, which several
/// hypotheses share.
Segments source_segments(const Segments& source, std::span<const int64_t> source_of);

}  // namespace heed::nn
