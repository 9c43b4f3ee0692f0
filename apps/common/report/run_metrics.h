// The numbers of a training run, epoch by epoch, in its folder.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <heed/train/event_file.h>
#include <heed/train/trainer.h>

#include "apps/common/figures/plot.h"
#include "apps/common/json_lines.h"

namespace heed::apps {

/// What lines of metrics are counted by: the epochs they are of, or the steps they came after.
enum class MetricsUnit { epoch, step };

/// The run's lines of metrics.jsonl, and the same for TensorBoard; resuming drops those of epochs or steps
/// that will be trained again, and lines that are damaged.
class Metrics {
 public:
  /// Numbers under the names that TensorBoard groups: "valid/loss", which is valid_loss in a line.
  using Scalars = std::vector<std::pair<std::string, double>>;

  /// `done` epochs or steps. IoError where the files cannot be written.
  Metrics(const std::filesystem::path& folder, int64_t done, MetricsUnit unit = MetricsUnit::epoch);

  /// The numbers of an epoch, or of what was trained of it, and what was measured after it.
  void write(const train::EpochReport& report, const Scalars& measured = {});
  /// The test at the end of a run.
  void write_end(int64_t step, const Scalars& measured, const Json& line);

  /// All that have been trained, also before a resume, but for those whose lines were lost.
  const std::vector<Json>& epochs() const { return epochs_; }

 private:
  std::vector<Json> epochs_;
  JsonLines lines_;
  train::EventFile events_;
};

/// The loss over epochs, lines of metrics.jsonl: loss.
Figure save_loss_figure(const std::vector<Json>& epochs, const std::filesystem::path& directory);

}  // namespace heed::apps
