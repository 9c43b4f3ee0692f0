// What a training prints and leaves in its folder, and which of its epochs is kept.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <heed/nn/text/text_model.h>

#include "apps/common/best_epoch.h"
#include "apps/common/report/run_metrics.h"
#include "apps/common/training_console.h"
#include "apps/translate/corpus.h"
#include "apps/translate/scores.h"

namespace heed::apps {

/// Judges each epoch on the validation texts and keeps the best one's weights in the folder.
class TrainOutput {
 public:
  /// All that is given must outlive it. `done` by the run that is resumed.
  TrainOutput(const Settings& settings, const Corpus& corpus, const nn::TextModel& model,
              const TrainingPairs& train, const data::TextDataset& valid, const train::TrainingState& done);

  void begin(Device device) const;
  void step(const train::StepReport& report);
  /// False where no better epoch is to be waited for.
  bool epoch(const train::EpochReport& report);
  /// Whether that is so before an epoch: of a resumed run that had ended.
  bool exhausted() const { return best_.exhausted(); }
  void stopped(int64_t step) { console_.stopped(step); }
  /// Tests the best epoch.
  void end(int64_t step);

 private:
  Metrics::Scalars measure() const;
  double selected(const Json& epoch) const;
  std::string training_loss_name() const;
  void save_losses() const;

  const Settings& settings_;
  const Corpus& corpus_;
  const nn::TextModel& model_;
  const TrainingPairs& train_;
  const data::TextDataset& valid_;
  std::vector<Example> judged_;  // of validation
  TrainingConsole console_;
  Metrics metrics_;
  BestEpoch best_;
};

/// {edit_rate, text_error, bleu, chrf, texts}; of an evaluation also the ends of their intervals.
Json to_json(const TextScores& scores);
Json to_json(const TextEvaluation& evaluation);
/// "BLEU 31.20 (30.12 to 32.31), chrF 55.01 (…), edit rate 54.30 % (…), wrong 71.00 % (…) of 1,200", in
/// brackets where 95 of 100 such tests would end; for pronunciations their two errors.
std::string describe(const TextEvaluation& evaluation, PairFormat format);

}  // namespace heed::apps
