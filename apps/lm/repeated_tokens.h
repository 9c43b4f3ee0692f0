// Random tokens that come again: what comes next nobody knows the first time, and then who remembers does.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <heed/nn/text/text_generator.h>

namespace heed::apps {

/// How well tokens are predicted.
struct Recall {
  double loss = 0;   // mean, in nats
  double right = 0;  // share of which the most probable is right
};

/// Sequences of one length, each of different random tokens that are repeated to its end. Each has a period
/// of its own, so that neither a place nor a distance tells what comes.
class RepeatedTokens {
 public:
  /// `count` sequences of 2 `period` of the tokens, each behind the one that begins texts. Their periods are
  /// from half of `period` to all of it. `period` is at least 2 and at most the number of tokens.
  RepeatedTokens(const nn::TextGenerator& generator, const std::vector<int64_t>& tokens, int64_t period,
                 int64_t count, uint64_t seed);

  const std::vector<std::vector<int64_t>>& sequences() const { return sequences_; }
  /// [sequences, rows].
  Tensor ids() const;

  struct Recalls {
    Recall first,
        again;  // of tokens that come for the first time, and of those whose predecessor came before
  };
  Recalls recall(nn::LanguageModel& model) const;

 private:
  std::vector<std::vector<int64_t>> sequences_;
  std::vector<int64_t> again_;  // of each the first place with a token that was there before
};

}  // namespace heed::apps
