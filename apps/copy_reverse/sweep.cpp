// Many trainings, their options varied: what each setting costs and gives.
#include "apps/common/sweep.h"

#include <algorithm>

#include <heed/core/base/divide.h>
#include <heed/core/base/parallel_for.h>
#include <heed/core/io/atomic_file.h>
#include <heed/nn/parameter.h>
#include <heed/nn/summary.h>

#include "apps/common/console.h"
#include "apps/common/sweep_results.h"
#include "apps/copy_reverse/commands.h"

namespace heed::apps {
namespace {

// What is of the sweep itself, or given to each training in another way.
const std::vector<std::string> kOfSweep{"vary",   "seeds", "jobs", "seed",      "out",
                                        "resume", "force", "json", "no-figures"};

const std::vector<Measure> kMeasures{
    {"parameters", "Parameters", "{:.0f}"},
    {"step_ms", "Step, ms", "{:.2f}"},
    {"peak_mib", "Memory, MiB", "{:.0f}"},
    {"loss", "Test loss", "{:.4f}"},
    {"token_accuracy", "Tokens right, %", "{:.2f}", 100},
    {"sequence_accuracy", "Sequences right, %", "{:.2f}", 100},
};

int64_t parameters_of(const Settings& settings) {
  const nn::ShapesOnly shapes_only;
  nn::Transformer model(settings.model_config());
  int64_t count = 0;
  for (const nn::ComponentCount& component : nn::count_parameters(model)) count += component.parameters;
  return count;
}

// A training, its options checked as its own start will check them.
SweepRun planned(const std::vector<std::string>& base, const std::vector<Variation>& variations,
                 const std::vector<std::string>& values) {
  SweepRun run{values, 0, {}, 1, 0, Json::object()};
  for (const std::string& argument : base) {
    const auto is_varied = [&](const Variation& v) { return argument.starts_with("--" + v.option + "="); };
    if (std::ranges::none_of(variations, is_varied)) run.arguments.push_back(argument);
  }
  for (size_t i = 0; i < values.size(); ++i)
    run.arguments.push_back(concat("--", variations[i].option, "=", values[i]));
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
  return run;
}

}  // namespace

void sweep(const SweepSettings& s, const OptionTable& table) {
  SweepOptions options;
  options.folder = s.out;
  options.variations = parse_variations(s.vary);
  options.resume = s.resume;
  options.force = s.force;
  for (const Variation& variation : options.variations)
    HEED_CHECK(std::ranges::find(kOfSweep, variation.option) == kOfSweep.end(), ConfigError,
               "--vary cannot vary ", variation.option);
  options.base = given_arguments(table, kOfSweep);
  if (!table.given("threads")) options.base.push_back("--threads=1");
  options.base.push_back("--no-figures=true");
  const int64_t threads = std::max<int64_t>(s.threads, 1);
  options.jobs = s.jobs > 0 ? s.jobs : std::max<int64_t>(thread_count() / threads, 1);

  // All settings with the first seed come first: what the others add is the deviations.
  std::vector<SweepRun> settings, runs;
  for (const auto& values : combinations(options.variations))
    settings.push_back(planned(options.base, options.variations, values));
  for (int64_t seed = s.seed; seed < s.seed + s.seeds; ++seed) {
    for (SweepRun& setting : settings) {
      setting.seed = seed;
      runs.push_back(setting);
    }
  }
  const SweepResults results(options.variations, kMeasures, run_sweep(runs, options));

  write_whole_file(s.out / "runs.csv", results.runs_csv());
  write_whole_file(s.out / "settings.csv", results.settings_csv());
  Presentation presentation(s.json, s.out);
  presentation.table("settings", results.table());
  for (const std::string& law : results.laws()) presentation.line(law);
  presentation.value("laws", results.laws());
  if (options.jobs > 1)
    presentation.line(concat("Times are those of trainings beside each other, ", options.jobs, " at once."));
  std::vector<std::filesystem::path> figures;
  for (const std::string& name : results.draw(presentation)) figures.push_back(s.out / (name + ".svg"));
  write_sweep_page(s.out / "report.html", "copy_reverse sweep", s.vary.empty() ? "seeds alone" : s.vary,
                   results, figures);
  presentation.finish();
}

}  // namespace heed::apps
