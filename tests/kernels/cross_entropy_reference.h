// Cross-entropy written out plainly: results in Store, arithmetic in Acc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "error_bound.h"

namespace heed::test {

struct LossOptions {
  int64_t ignore = -100;
  double smoothing = 0;
  bool mean = true;
};

template <class Store, class Acc>
struct PlainLoss {
  std::vector<Acc> loss;  // one element
  int64_t counted;
  std::vector<Store> glogits;
};

/// The mean is that over `counted_targets`, of which these may be a part.
template <class Store, class Acc, class T>
PlainLoss<Store, Acc> plain_cross_entropy(const std::vector<T>& logits, const std::vector<int64_t>& targets,
                                          int64_t classes, const LossOptions& options,
                                          const std::vector<int64_t>& counted_targets) {
  const int64_t rows = static_cast<int64_t>(targets.size());
  PlainLoss<Store, Acc> result{{Acc(0)}, 0, std::vector<Store>(logits.size(), Store(0.0f))};
  for (const int64_t target : counted_targets) result.counted += target != options.ignore;
  const Acc weight = options.mean && result.counted > 0 ? Acc(1) / Acc(result.counted) : Acc(1);
  const Acc smoothing = Acc(options.smoothing), uniform = smoothing / Acc(classes);
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] == options.ignore) continue;
    const T* x = logits.data() + r * classes;
    Acc most = -std::numeric_limits<Acc>::infinity();
    for (int64_t c = 0; c < classes; ++c) most = std::max(most, Acc(x[c]));
    Acc sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(Acc(x[c]) - most);
    for (int64_t c = 0; c < classes; ++c) {
      const Acc log_p = Acc(x[c]) - most - std::log(sum);
      const Acc wanted = (c == targets[r] ? 1 - smoothing : Acc(0)) + uniform;
      if (wanted != 0) result.loss[0] -= wanted * log_p * weight;
      result.glogits[r * classes + c] = Store((std::exp(log_p) - wanted) * weight);
    }
  }
  return result;
}

template <class Store, class Acc, class T>
PlainLoss<Store, Acc> plain_cross_entropy(const std::vector<T>& logits, const std::vector<int64_t>& targets,
                                          int64_t classes, const LossOptions& options) {
  return plain_cross_entropy<Store, Acc>(logits, targets, classes, options, targets);
}

/// A quarter of them ignored.
inline std::vector<int64_t> random_targets(int64_t rows, int64_t classes, const LossOptions& options,
                                           uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int64_t> targets(rows);
  for (int64_t& target : targets)
    target =
        engine() % 4 == 0 ? options.ignore : static_cast<int64_t>(engine() % static_cast<uint32_t>(classes));
  return targets;
}

}  // namespace heed::test
