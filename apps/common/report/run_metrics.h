// The numbers of a training run, epoch by epoch and step by step, in its folder.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <heed/train/event_file.h>
#include <heed/train/trainer.h>

#include "apps/common/figures/plot.h"
#include "apps/common/json_lines.h"
#include "apps/common/report/step_curve.h"

namespace heed::apps {

/// What lines of metrics are counted by: the epochs they are of, or the steps they came after.
enum class MetricsUnit { epoch, step };

/// The run's lines of metrics.jsonl, and the same for TensorBoard; resuming drops those of epochs or steps
/// that will be trained again, and lines that are damaged.
class Metrics {
 public:
  /// Numbers under the names that TensorBoard groups: "valid/loss", which is valid_loss in a line.
  using Scalars = std::vector<std::pair<std::string, double>>;

  /// Of a run that begins, or goes on at `done`. IoError where the files cannot be written.
  Metrics(const std::filesystem::path& folder, const train::TrainingState& done,
          MetricsUnit unit = MetricsUnit::epoch);

  void step(const train::StepReport& report) { curve_.add(report); }
  /// The numbers of an epoch, or of what was trained of it, and what was measured after it.
  void write(const train::EpochReport& report, const Scalars& measured = {});
  /// The test at the end of a run.
  void write_end(int64_t step, const Scalars& measured, const Json& line);

  /// All that have been trained, also before a resume, but for those whose lines were lost.
  const std::vector<Json>& epochs() const { return epochs_; }
  const std::vector<StepPoint>& steps() const { return curve_.points(); }

 private:
  std::vector<Json> epochs_;
  JsonLines lines_;
  train::EventFile events_;
  StepCurve curve_;
};

/// A number of a line, NaN if it has none.
double number_or_nan(const Json& line, const char* key);

/// The loss over steps, and that of validation where epochs have one: DIR/loss. `training` says what the
/// first is.
Figure save_loss_figure(const Metrics& metrics, const std::filesystem::path& directory,
                        const std::string& training = "training");

}  // namespace heed::apps
