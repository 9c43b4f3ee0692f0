// A training's course step by step, in a bounded number of points.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <heed/train/trainer.h>

#include "apps/common/json_lines.h"

namespace heed::apps {

/// What consecutive steps came to: the means of their loss and gradient norm.
struct StepPoint {
  int64_t step = 0;   ///< the last of them
  int64_t steps = 0;  ///< how many they are
  double loss = 0;
  double lr = 0;         ///< of the last
  double grad_norm = 0;  ///< before clipping
};

/// The points of a run, in DIR/steps.jsonl as soon as they are known. A point is a step; whenever there are
/// more than kMaxPoints, two become one, so neither the file nor the memory grows with the run. Steps between
/// the last point and a kill are missing from it after a resume.
class StepCurve {
 public:
  static constexpr int64_t kMaxPoints = 1000;

  /// Goes on after `done` steps: points of later ones are dropped, and lines that are damaged. IoError.
  StepCurve(const std::filesystem::path& folder, int64_t done);

  void add(const train::StepReport& report);

  const std::vector<StepPoint>& points() const { return points_; }

 private:
  void halve();

  std::filesystem::path file_;
  std::optional<JsonLines> lines_;
  std::vector<StepPoint> points_;
  StepPoint next_ = {};
  int64_t every_ = 1;  // steps in a point
};

}  // namespace heed::apps
