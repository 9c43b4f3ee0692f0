#include <algorithm>
#include <cmath>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/optim/schedule.h>

namespace heed::optim {
namespace {

constexpr std::pair<const char*, ScheduleKind> kNames[] = {{"constant", ScheduleKind::constant},
                                                           {"step", ScheduleKind::step},
                                                           {"noam", ScheduleKind::noam},
                                                           {"cosine", ScheduleKind::cosine},
                                                           {"linear", ScheduleKind::linear}};

}  // namespace

ScheduleKind parse_schedule(const std::string& text) {
  for (const auto& entry : kNames)
    if (text == entry.first) return entry.second;
  throw ConfigError(concat("unknown schedule '", text, "'; expected constant, step, noam, cosine or linear"));
}

void Schedule::check() const {
  HEED_CHECK(lr >= 0 && std::isfinite(lr), ConfigError, "schedule: lr must be finite and not negative, got ",
             lr);
  HEED_CHECK(warmup >= 0, ConfigError, "schedule: warmup must not be negative, got ", warmup);
  HEED_CHECK(kind != ScheduleKind::step || step_size > 0, ConfigError,
             "schedule: step_size must be positive, got ", step_size);
  HEED_CHECK(kind != ScheduleKind::step || (gamma >= 0 && std::isfinite(gamma)), ConfigError,
             "schedule: gamma must be finite and not negative, got ", gamma);
  const bool falls = kind == ScheduleKind::cosine || kind == ScheduleKind::linear;
  HEED_CHECK(!falls || total > warmup, ConfigError, "schedule: total = ", total,
             " steps must exceed warmup = ", warmup);
  HEED_CHECK(floor >= 0 && floor <= 1, ConfigError, "schedule: floor must be in [0, 1], got ", floor);
}

double Schedule::at(int64_t step) const {
  check();
  HEED_CHECK(step >= 0, ConfigError, "schedule: steps are counted from 0, got ", step);
  const auto now = static_cast<double>(step), rise = static_cast<double>(warmup);
  if (step < warmup) return lr * (now + 1) / rise;
  if (kind == ScheduleKind::noam) return lr * std::sqrt(std::max(rise, 1.0) / (now + 1));
  if (kind == ScheduleKind::constant) return lr;
  if (kind == ScheduleKind::step)
    return lr * std::pow(gamma, std::floor(now / static_cast<double>(step_size)));
  const double progress = std::min(1.0, (now - rise) / static_cast<double>(total - warmup));
  const double height =
      kind == ScheduleKind::cosine ? (1 + std::cos(3.14159265358979323846 * progress)) / 2 : 1 - progress;
  return lr * (floor + (1 - floor) * height);
}

double noam_lr(int64_t d_model, int64_t warmup) {
  HEED_CHECK(d_model > 0 && warmup > 0, ConfigError, "noam_lr: d_model ", d_model, " and warmup ", warmup,
             " must be positive");
  return 1 / std::sqrt(static_cast<double>(d_model) * static_cast<double>(warmup));
}

}  // namespace heed::optim
