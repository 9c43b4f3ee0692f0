// Many trainings, their options varied: what each setting costs and gives.
#include "apps/translate/commands.h"

namespace heed::apps {
namespace {

// A training's options are checked as its own start will check them, but for its texts.
void plan(SweepRun& run) {
  Settings settings;
  OptionTable table("translate train");
  declare_training(table, settings);
  table.parse(run.arguments, nullptr);
  settings.check();
  run.epochs = std::min<int64_t>(settings.last_epoch(), 1 << 20);
}

}  // namespace

void sweep(const SweepOfTrainings& s, const OptionTable& table) {
  const SweptProgram program{.name = "translate",
                             .own = {},
                             .always = {},
                             .measures = {{"best_epoch", "Best epoch", "{:.1f}"},
                                          {"edit_rate", "Edits, %", "{:.2f}", 100},
                                          {"text_error", "Wrong, %", "{:.2f}", 100},
                                          {"bleu", "BLEU", "{:.2f}"},
                                          {"chrf", "chrF", "{:.2f}"}},
                             .plan = plan};
  sweep(program, s, s, s, table);
}

}  // namespace heed::apps
