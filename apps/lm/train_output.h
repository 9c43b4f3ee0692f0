// What a training prints and leaves in its folder, and which of its measurements is kept.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <heed/data/text/document_dataset.h>
#include <heed/nn/text/text_generator.h>
#include <heed/train/language_model.h>

#include "apps/common/best_epoch.h"
#include "apps/common/report/run_metrics.h"
#include "apps/common/training_console.h"
#include "apps/lm/documents.h"

namespace heed::apps {

/// Measures how well the validation text is predicted and has the best weights saved.
class TrainOutput {
 public:
  struct Work {
    const TrainSettings& settings;
    const Documents& documents;
    const nn::TextGenerator& generator;
    const data::DocumentDataset &train, &valid;
    nn::Module& trained;         // the model, or its adapters
    std::function<void()> save;  // the weights as they are
  };

  /// All that is given must outlive it. `steps_done` by the run that is resumed, of `last_step`.
  TrainOutput(const Work& work, const train::TrainingState& done, int64_t last_step);

  void begin(Device device);
  void step(const train::StepReport& report);
  /// False where no better measurement is to be waited for.
  bool measure(const train::EpochReport& report);
  /// Whether that is so before a step: of a resumed run that had ended.
  bool exhausted() const { return best_.exhausted(); }
  void stopped(int64_t step) { console_.stopped(step); }
  /// After the run, whose last steps `report` is of.
  void end(const train::EpochReport& report);

 private:
  double selected(const Json& measurement) const;
  Metrics::Scalars predict() const;
  void show_sample(int64_t step) const;
  void save_losses() const;

  Work work_;
  const TrainSettings& settings_;
  int64_t steps_done_, last_step_;
  TrainingConsole console_;
  Metrics metrics_;
  BestEpoch best_;  // by the number of the measurement
};

}  // namespace heed::apps
