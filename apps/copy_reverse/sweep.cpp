// Many trainings, their options varied: what each setting costs and gives.
#include <algorithm>

#include <heed/core/base/int_math.h>
#include <heed/nn/parameter.h>
#include <heed/nn/summary.h>

#include "apps/common/console.h"
#include "apps/copy_reverse/commands.h"

namespace heed::apps {
namespace {

int64_t parameters_of(const Settings& settings) {
  const nn::ShapesOnly shapes_only;
  const std::unique_ptr<nn::Seq2SeqModel> model = blank_model(settings);
  int64_t count = 0;
  for (const nn::ComponentCount& component : nn::count_parameters(*model)) count += component.parameters;
  return count;
}

// A training's options are checked as its own start will check them.
void plan(SweepRun& run) {
  Settings settings;
  OptionTable table("copy_reverse train");
  declare_training(table, settings);
  table.parse(run.arguments, nullptr);
  settings.check();
  const auto pairs = settings.training_data();
  settings.check_training_lengths(*pairs);
  const int64_t per_step = settings.batch_size * settings.accumulate.value_or(1);
  const int64_t steps = ceil_divide(pairs->size(), per_step);
  run.epochs = std::min(settings.last_epoch(), ceil_divide(settings.last_step(steps), steps));
  run.samples_per_step = static_cast<double>(std::min(per_step, pairs->size()));
  run.known["parameters"] = parameters_of(settings);
}

}  // namespace

void sweep(const SweepOfTrainings& s, const OptionTable& table) {
  const SweptProgram program{.name = "copy_reverse",
                             .own = {"no-figures"},
                             .always = {"--no-figures=true"},
                             .measures = {{"parameters", "Parameters", "{:.0f}"},
                                          {"step_ms", "Step, ms", "{:.2f}"},
                                          {"peak_mib", "Memory, MiB", "{:.0f}"},
                                          {"loss", "Test loss", "{:.4f}"},
                                          {"token_accuracy", "Tokens right, %", "{:.2f}", 100},
                                          {"sequence_accuracy", "Sequences right, %", "{:.2f}", 100}},
                             .plan = plan};
  sweep(program, s, s, s, table);
}

}  // namespace heed::apps
