#include "apps/lm/repeated_tokens.h"

#include <algorithm>

#include <heed/core/creation.h>
#include <heed/core/ops.h>

#include "apps/common/program.h"

namespace heed::apps {
namespace {

class Tally {
 public:
  void add(const Tensor& logits, const std::vector<int64_t>& targets) {
    const auto count = std::ssize(targets);
    loss_ += cross_entropy(logits, tensor(targets, {count}), {.reduction = Reduction::sum}).item<double>();
    const std::vector<int64_t> likeliest = argmax(logits, -1).to_vector<int64_t>();
    for (size_t i = 0; i < targets.size(); ++i) right_ += likeliest[i] == targets[i];
    count_ += count;
  }
  Recall mean() const {
    const auto count = static_cast<double>(count_);
    return {loss_ / count, static_cast<double>(right_) / count};
  }

 private:
  double loss_ = 0;
  int64_t right_ = 0, count_ = 0;
};

}  // namespace

RepeatedTokens::RepeatedTokens(const nn::TextGenerator& generator, const std::vector<int64_t>& tokens,
                               int64_t period, int64_t count, uint64_t seed) {
  HEED_CHECK(period >= 2 && period <= std::ssize(tokens), ConfigError, "a period of ", period,
             " different tokens; there are ", tokens.size());
  Generator random(seed);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own =
        randint(std::max<int64_t>(2, period / 2), period + 1, {1}, kCpu, random).item<int64_t>();
    const std::vector<int64_t> order =
        sort(rand({std::ssize(tokens)}, {}, random)).second.to_vector<int64_t>();
    std::vector<int64_t> sequence;
    if (generator.start() >= 0) sequence.push_back(generator.start());
    again_.push_back(std::ssize(sequence) + own);
    for (int64_t at = 0; at < 2 * period; ++at)
      sequence.push_back(tokens[static_cast<size_t>(order[static_cast<size_t>(at % own)])]);
    sequences_.push_back(std::move(sequence));
  }
}

Tensor RepeatedTokens::ids() const {
  std::vector<int64_t> ids;
  for (const std::vector<int64_t>& sequence : sequences_)
    ids.insert(ids.end(), sequence.begin(), sequence.end());
  const auto count = std::ssize(sequences_);
  return tensor(ids, {count, std::ssize(ids) / count});
}

RepeatedTokens::Recalls RepeatedTokens::recall(nn::LanguageModel& model) const {
  const NoGrad no_grad;
  const Device device = model.embedding.weight.device();
  Tally first, again;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    throw_if_stopped();
    const std::vector<int64_t>& ids = sequences_[i];
    const Tensor logits = model.forward(nn::Tokens::packed({ids}, device)).to(kCpu);
    const int64_t length = std::ssize(ids), begin = again_[i];
    first.add(logits.slice(0, 0, begin - 1), {ids.begin() + 1, ids.begin() + begin});
    again.add(logits.slice(0, begin, length - 1), {ids.begin() + begin + 1, ids.end()});
  }
  return {first.mean(), again.mean()};
}

}  // namespace heed::apps
