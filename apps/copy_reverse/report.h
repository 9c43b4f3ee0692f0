// report.html of a training run.
#pragma once

#include <string>
#include <vector>

#include "apps/common/json_lines.h"
#include "apps/common/report/run_metrics.h"
#include "apps/common/seq2seq.h"
#include "apps/copy_reverse/settings.h"

namespace heed::apps {

/// {loss, token_accuracy, sequence_accuracy, pairs}.
Json to_json(const Evaluation& result);

/// What a run has come to so far.
struct TrainedRun {
  const Settings& settings;
  std::string settings_json;  // OptionTable::dump_json()
  const Metrics& metrics;
  const Evaluation* result;          // with failures; null while the run goes on
  std::vector<Prediction> examples;  // the first is shown with its attention
};

/// Writes DIR/report.html (apps/common/report/report.h), with the attention of the first example and of the
/// first failure; of sequences too long for a page there is none.
void write_run_report(nn::Seq2SeqModel& model, const TrainedRun& run);

}  // namespace heed::apps
