// Learning rates over time.
#pragma once

#include <cstdint>
#include <string>

namespace heed::optim {

enum class ScheduleKind {
  constant,
  step,    // lr * gamma^(step / step_size)
  noam,    // lr * min(step / warmup, (warmup / step)^0.5), steps from 1 (arXiv 1706.03762, 5.3)
  cosine,  // from lr to floor * lr along half a cosine
  linear   // from lr to floor * lr along a line
};

/// "constant", "step", "noam", "cosine" or "linear"; ConfigError on anything else.
ScheduleKind parse_schedule(const std::string& name);

/// A rate for each step, from the step's number alone: nothing to save. It rises linearly from lr / warmup
/// over the first `warmup` steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 1e-3;       // the highest
  int64_t warmup = 0;     // steps
  int64_t total = 0;      // steps at whose end cosine and linear reach the floor
  double floor = 0;       // as a fraction of lr
  int64_t step_size = 0;  // steps between falls
  double gamma = 0.1;     // factor of a fall

  /// The rate of step number `step`, counted from 0. ConfigError for a negative step, and as check().
  double at(int64_t step) const;
  /// ConfigError where a number cannot be, as a total that does not exceed the warm-up.
  void check() const;
};

/// The highest rate of the paper's own schedule, (d_model * warmup)^-0.5: at its base model's 512 and 4,000
/// steps 0.0007. ConfigError unless both are positive.
double noam_lr(int64_t d_model, int64_t warmup);

}  // namespace heed::optim
