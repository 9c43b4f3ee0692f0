// The command `sweep` of a program that trains.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "apps/common/options/common_settings.h"
#include "apps/common/options/training_settings.h"
#include "apps/common/sweep/sweep_results.h"

namespace heed::apps {

/// What a sweep takes besides the options of its trainings.
struct SweepSettings {
  std::string vary;
  int64_t seeds = 3, jobs = 0;  // 0: as many as there are cores for
};

/// The group "Sweep".
void declare_sweep(OptionTable& table, SweepSettings& settings);

/// What a sweep has to know of its program.
struct SweptProgram {
  std::string name;                     // "copy_reverse"
  std::vector<std::string> own;         // options that are not given to trainings as they are
  std::vector<std::string> always;      // arguments that all trainings get besides
  std::vector<Measure> measures;        // what is worth showing of the rows
  std::function<void(SweepRun&)> plan;  // checks a run's arguments; fills in its work and what is known
};

/// Trains each setting with each seed, and leaves the rows, their table, figures and a page in the folder.
/// Errors as run_sweep().
void sweep(const SweptProgram& program, const SweepSettings& settings, const CommonSettings& common,
           const RunSettings& run, const OptionTable& table);

}  // namespace heed::apps
