#include "apps/common/options/training_settings.h"

#include <algorithm>

#include <heed/core/base/int_math.h>
#include <heed/optim/adam.h>
#include <heed/optim/sgd.h>
#include <heed/train/run_folder.h>

#include "apps/common/options/common_settings.h"

namespace heed::apps {
namespace {

constexpr IntegerRange kFromZero{0, int64_t{1} << 40};
constexpr IntegerRange kSize{1, int64_t{1} << 20};
constexpr NumberRange kRate{0, 1, false, true};  // [0, 1)

}  // namespace

void declare_optimization(OptionTable& table, OptimizationSettings& s) {
  table.group("Training");
  table.integer("epochs", s.epochs, "Times through the training data", kFromZero);
  table.integer("steps", s.steps,
                "Optimizer steps; with --epochs whichever ends first; 0 only writes the model", kFromZero);
  table.integer("batch-size", s.batch_size, "Samples in a batch", kSize);
  table.integer("accumulate", s.accumulate,
                "Batches a step, whose gradients are added as those of one; by default 1", {1, 1 << 16});
  table.flag("no-shuffle", s.no_shuffle, "Batches in the order of the data, unsorted");
  table.choice("optimizer", s.optimizer, "Optimizer",
               {{"adam", OptimizerKind::adam}, {"adamw", OptimizerKind::adamw}, {"sgd", OptimizerKind::sgd}});
  table.number("beta1", s.beta1, "Adam: decay of the first moment; sgd: momentum", kRate);
  table.number("beta2", s.beta2, "Adam: decay of the second moment", kRate);
  table.number("adam-eps", s.adam_eps, "Adam: added to the root of the second moment", {0, 1, true, false});
  table.number("lr", s.lr, "Learning rate at its highest", {0, 1e6, true, false});
  table.number("weight-decay", s.weight_decay, "Weight decay", {0, 1e6, false, false});
  table.choice("schedule", s.schedule, "Course of the learning rate",
               {{"constant", optim::ScheduleKind::constant},
                {"step", optim::ScheduleKind::step},
                {"noam", optim::ScheduleKind::noam},
                {"cosine", optim::ScheduleKind::cosine},
                {"linear", optim::ScheduleKind::linear}});
  table.integer("warmup", s.warmup, "Steps over which the rate rises", kFromZero);
  table.integer("step-epochs", s.step_epochs, "Epochs between falls of --schedule step", kSize);
  table.number("gamma", s.gamma, "Factor of each fall", {0, 1, true, false});
  table.number("clip", s.clip, "Largest norm of the gradients; 0: no clipping", {0, 1e30, false, false});
  table.integer("average", s.average, "Checkpoints whose mean of the weights is judged and saved",
                {1, 1 << 10});
  table.number("ema", s.ema, "Decay of an exponential average of the weights, which is judged and saved",
               {0, 1, true, true});
  table.number("label-smoothing", s.label_smoothing, "Part of each target spread over all symbols", kRate);
}

void declare_run(OptionTable& table, RunSettings& s) {
  table.group("Run");
  declare_dtype(table, s.dtype);
  table.flag("resume", s.resume, "Go on from the last checkpoint in --out, with its settings").not_saved();
  table
      .integer("save-every", s.save_every, "Steps between checkpoints; 0: one at the end of each epoch",
               kFromZero)
      .not_saved();
  table.flag("force", s.force, "Overwrite what --out holds").not_saved();
  table.path("out", s.out, "Folder of the model, its settings, metrics and figures").not_saved();
}

void RunSettings::check() const {
  HEED_CHECK(!resume || !force, ConfigError,
             "--resume and --force contradict each other: one goes on with what --out holds, the other "
             "replaces it");
  HEED_CHECK(!resume || train::has_checkpoint(out), CheckpointError, out.string(),
             ": there is no checkpoint to resume from");
}

void take_saved_settings(const RunSettings& s, OptionTable& table) {
  if (s.resume) table.read_toml(train::saved_settings(s.out), "the settings of the checkpoint");
}

void read_trained_settings(OptionTable& table, const std::filesystem::path& directory) {
  std::error_code ignored;
  HEED_CHECK(std::filesystem::exists(directory / "config.toml", ignored), CheckpointError,
             "there is no trained model in ", directory.string(), ": config.toml is missing");
  table.read_file(directory / "config.toml");
}

DirectoryLock open_run_folder(const RunSettings& s) {
  using train::RunStart;
  const RunStart start = s.resume ? RunStart::resume : s.force ? RunStart::replace : RunStart::fresh;
  DirectoryLock lock = train::lock_run_folder(s.out, start, "add --force to replace it or --resume to go on");
  train::prepare_run_folder(s.out, start);
  return lock;
}

int64_t OptimizationSettings::last_step(int64_t steps_per_epoch) const {
  const bool endless = last_epoch() >= (int64_t{1} << 40);
  return std::min(steps.value_or(INT64_MAX), endless ? INT64_MAX : last_epoch() * steps_per_epoch);
}

optim::Schedule OptimizationSettings::rate_schedule(int64_t steps_per_epoch) const {
  optim::Schedule result{.kind = schedule,
                         .lr = lr,
                         .warmup = warmup,
                         .total = std::max(last_step(steps_per_epoch), warmup + 1),
                         .step_size = std::max<int64_t>(1, step_epochs * steps_per_epoch),
                         .gamma = gamma};
  result.check();
  return result;
}

train::TrainerOptions trainer_options(const OptimizationSettings& s, const RunSettings& run,
                                      const OptionTable& table, int64_t batches, std::string data) {
  HEED_CHECK(!s.average || !s.ema, ConfigError,
             "--average and --ema contradict each other: one average of the weights is saved");
  const int64_t accumulate = s.accumulate.value_or(1);
  return {.epochs = s.last_epoch(),
          .steps = s.steps.value_or(INT64_MAX),
          .accumulate = accumulate,
          .clip = s.clip,
          .schedule = s.rate_schedule(ceil_divide(batches, accumulate)),
          .average = s.average.value_or(0),
          .ema = s.ema.value_or(0),
          .save_every = run.save_every,
          .directory = run.out,
          .settings = table.dump_toml(),
          .data = std::move(data)};
}

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizationSettings& s, nn::Module& model,
                                                 std::vector<optim::Group> groups) {
  const optim::AdamOptions adam{.lr = s.lr,
                                .beta1 = s.beta1,
                                .beta2 = s.beta2,
                                .eps = s.adam_eps,
                                .weight_decay = s.weight_decay,
                                .groups = groups};
  switch (s.optimizer) {
    case OptimizerKind::adam:
      return std::make_unique<optim::Adam>(model.parameters(), adam);
    case OptimizerKind::adamw:
      return std::make_unique<optim::AdamW>(model.parameters(), adam);
    case OptimizerKind::sgd:
      break;
  }
  return std::make_unique<optim::Sgd>(
      model.parameters(),
      optim::SgdOptions{
          .lr = s.lr, .momentum = s.beta1, .weight_decay = s.weight_decay, .groups = std::move(groups)});
}

}  // namespace heed::apps
