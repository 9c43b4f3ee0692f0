// Why scores are divided by √d.
#include <cmath>

#include <fmt/format.h>

#include <heed/core/ops.h>

#include "apps/common/program.h"
#include "apps/explain/common.h"

namespace heed::apps {
namespace {

// Of the softmax over the keys, averaged over draws.
struct Softness {
  double score_deviation, largest_weight, entropy, gradient;
};

// scores [draws, keys]. The entropy is a part of log(keys), that of equal weights. The gradient is the
// Frobenius norm of the softmax's Jacobian J = diag(p) - p pᵀ: ‖J‖² = Σp² - 2Σp³ + (Σp²)².
Softness softness(const Tensor& scores) {
  const Tensor p = softmax(scores), log_p = log_softmax(scores);
  const ReduceOptions over_keys{.axes = {1}};
  const Tensor squares = sum(square(p), over_keys);
  const Tensor jacobian = squares - 2.0 * sum(power(p, 3), over_keys) + square(squares);
  return {sqrt(variance(scores)).item<double>(), mean(max(p, over_keys)).item<double>(),
          mean(-sum(p * log_p, over_keys)).item<double>() / std::log(static_cast<double>(scores.size(1))),
          mean(sqrt(clamp(jacobian, 0, 1))).item<double>()};
}

}  // namespace

void explain_scale(const ScaleSettings& settings) {
  Presentation p = present(settings);
  Generator generator(static_cast<uint64_t>(settings.seed));
  Table table{{{"d", "{}"},
               {"scores", "{}"},
               {"deviation", "{:.2f}"},
               {"largest weight", "{:.3f}"},
               {"entropy", "{:.3f}"},
               {"gradient", "{:.3f}"}},
              {}};
  Line entropy[2] = {{"Q Kᵀ", {}, {}}, {"Q Kᵀ / √d", {}, {}}}, gradient[2] = {entropy[0], entropy[1]};
  for (int64_t d = 1; d <= 1024; d *= 2) {
    throw_if_stopped();
    const Tensor q = normal_numbers({settings.draws, d, 1}, generator);
    const Tensor k = normal_numbers({settings.draws, settings.keys, d}, generator);
    const Tensor raw = matmul(k, q).squeeze(2), scaled = raw / std::sqrt(static_cast<double>(d));
    for (const bool is_scaled : {false, true}) {
      const Softness s = softness(is_scaled ? scaled : raw);
      table.rows.push_back(
          {d, is_scaled ? "scaled" : "raw", s.score_deviation, s.largest_weight, s.entropy, s.gradient});
      for (Line* line : {&entropy[is_scaled], &gradient[is_scaled]})
        line->x.push_back(static_cast<double>(d));
      entropy[is_scaled].y.push_back(s.entropy);
      gradient[is_scaled].y.push_back(s.gradient);
    }
  }
  p.heading(fmt::format("Queries and keys of d normal numbers: the softmax over {} keys, mean of {} draws",
                        settings.keys, settings.draws));
  p.table("scale", table);
  p.line("entropy: 1 is equal weights, 0 a single key; gradient: norm of the softmax's Jacobian");
  p.figure(LinePlot{"Entropy of the attention weights",
                    "Width d of queries and keys",
                    "Entropy / entropy of equal weights",
                    {entropy[0], entropy[1]},
                    true,
                    false},
           "scale-entropy");
  p.figure(LinePlot{"What the softmax lets through to the scores",
                    "Width d of queries and keys",
                    "Norm of the Jacobian",
                    {gradient[0], gradient[1]},
                    true,
                    false},
           "scale-gradient");
  p.finish();
}

}  // namespace heed::apps
