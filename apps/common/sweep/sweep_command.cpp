#include "apps/common/sweep/sweep_command.h"

#include <algorithm>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/io/atomic_file.h>

namespace heed::apps {
namespace {

// What is of the sweep itself, or given to each training in another way.
const std::vector<std::string> kOfSweep{"vary", "seeds", "jobs", "seed", "out", "resume", "force", "json"};

/// A setting's training: the arguments of all without those that vary, and these.
SweepRun setting(const std::vector<std::string>& base, const std::vector<Variation>& variations,
                 const std::vector<std::string>& values) {
  SweepRun run;
  run.values = values;
  for (const std::string& argument : base) {
    const auto is_varied = [&](const Variation& v) { return argument.starts_with("--" + v.option + "="); };
    if (std::ranges::none_of(variations, is_varied)) run.arguments.push_back(argument);
  }
  for (size_t i = 0; i < values.size(); ++i)
    run.arguments.push_back(concat("--", variations[i].option, "=", values[i]));
  return run;
}

}  // namespace

void declare_sweep(OptionTable& table, SweepSettings& s) {
  table.group("Sweep");
  table.text("vary", s.vary, "Options and their values: \"heads=1,2,4 lr=1e-3,2e-3\"");
  table.integer("seeds", s.seeds, "Trainings of each setting, with seeds from --seed on", {1, 1 << 16});
  table.integer("jobs", s.jobs, "Trainings at once; 0: one for each core, or for each --threads of them",
                {0, 1 << 10});
}

void sweep(const SweptProgram& program, const SweepSettings& s, const CommonSettings& common,
           const RunSettings& run, const OptionTable& table) {
  std::vector<std::string> own = kOfSweep;
  own.insert(own.end(), program.own.begin(), program.own.end());
  SweepOptions options;
  options.folder = run.out;
  options.variations = parse_variations(s.vary);
  options.resume = run.resume;
  options.force = run.force;
  for (const Variation& variation : options.variations)
    HEED_CHECK(std::ranges::find(own, variation.option) == own.end(), ConfigError, "--vary cannot vary ",
               variation.option);
  options.base = given_arguments(table, own);
  if (!table.given("threads")) options.base.push_back("--threads=1");
  options.base.insert(options.base.end(), program.always.begin(), program.always.end());
  const int64_t threads = std::max<int64_t>(common.threads, 1);
  options.jobs = s.jobs > 0 ? s.jobs : std::max<int64_t>(thread_count() / threads, 1);

  // All settings with the first seed come first: what the others add is the deviations.
  std::vector<SweepRun> settings, runs;
  for (const auto& values : combinations(options.variations)) {
    settings.push_back(setting(options.base, options.variations, values));
    program.plan(settings.back());
  }
  for (int64_t seed = common.seed; seed < common.seed + s.seeds; ++seed) {
    for (SweepRun& each : settings) {
      each.seed = seed;
      runs.push_back(each);
    }
  }
  const SweepResults results(options.variations, program.measures, run_sweep(runs, options));

  write_whole_file(run.out / "runs.csv", results.runs_csv());
  write_whole_file(run.out / "settings.csv", results.settings_csv());
  Presentation presentation(common.json, run.out);
  presentation.table("settings", results.table());
  for (const std::string& law : results.laws()) presentation.line(law);
  presentation.value("laws", results.laws());
  if (options.jobs > 1)
    presentation.line(concat("Times are those of trainings beside each other, ", options.jobs, " at once."));
  std::vector<std::filesystem::path> figures;
  for (const std::string& name : results.draw(presentation)) figures.push_back(run.out / (name + ".svg"));
  write_sweep_page(run.out / "report.html", program.name + " sweep", s.vary.empty() ? "seeds alone" : s.vary,
                   results, figures);
  presentation.finish();
}

}  // namespace heed::apps
