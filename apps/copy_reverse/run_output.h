// What a training run prints, draws and leaves beside its weights.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/report/run_metrics.h"
#include "apps/common/seq2seq.h"
#include "apps/common/training_console.h"
#include "apps/copy_reverse/settings.h"

namespace heed::apps {

/// Writes metrics, the report while the run goes on, since it may be killed, and the figures at the end.
class RunOutput {
 public:
  /// All that is given must outlive it. `done` by the run that is resumed.
  RunOutput(const Settings& settings, const OptionTable& table, nn::Seq2SeqModel& model,
            const data::PairDataset& pairs, const data::PairDataset& test, const train::TrainingState& done);

  void begin(Device device) const;
  void step(const train::StepReport& report);
  void epoch(const train::EpochReport& report);
  void stopped(int64_t step);
  /// Tests the model.
  void end(int64_t step);

 private:
  /// The examples in it.
  std::vector<Prediction> write_report(const Evaluation* result);
  bool report_is_due() const;
  Metrics::Scalars validate() const;
  void print(const Prediction& prediction) const;
  void draw(const Prediction& example) const;

  const Settings& settings_;
  const OptionTable& table_;
  nn::Seq2SeqModel& model_;
  const data::PairDataset &pairs_, &test_;
  TrainingConsole console_;
  Metrics metrics_;
  int64_t reported_ = 0;  // epochs in the report
  std::chrono::steady_clock::time_point reported_at_ = {};
};

}  // namespace heed::apps
