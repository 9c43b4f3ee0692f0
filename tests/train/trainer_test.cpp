// The training loop, of a model that is no Transformer: callbacks, accumulation, stopping and resuming, and
// what is refused.
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/base/warning.h>
#include <heed/core/ops.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/sequential.h>
#include <heed/optim/adam.h>
#include <heed/train/trainer.h>

#include "expect_error.h"
#include "flat_values.h"
#include "temporary_folder.h"

namespace heed::train {
namespace {

using test::expect_error;

using Point = std::array<float, 2>;

/// Points of a plane, other ones in each epoch.
class Points final : public data::Dataset<Point> {
 public:
  int64_t size() const override { return 50; }
  Point get(int64_t epoch, int64_t index) const override {
    const auto angle = static_cast<float>(epoch * 50 + index);
    return {std::sin(angle), std::cos(3 * angle)};
  }
  std::string fingerprint() const override { return "points"; }
};

// x0 - 2 x1 + 1 is to be learned; the tokens of a batch are its points.
Batch collate(std::span<const Point> points, std::span<const int64_t>) {
  const auto count = std::ssize(points);
  const Tensor x = empty({count, 2}), y = empty({count, 1});
  for (int64_t i = 0; i < count; ++i) {
    const auto& point = points[static_cast<size_t>(i)];
    std::copy(point.begin(), point.end(), x.data<float>() + 2 * i);
    y.data<float>()[i] = point[0] - 2 * point[1] + 1;
  }
  return {{{x, y}, {}}, count, count};
}

struct Training {
  Generator generator{5};
  nn::Sequential model;
  std::unique_ptr<optim::Adam> adam;
  data::Loader<Point, Batch> loader;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> losses;
  optim::Schedule schedule{.kind = optim::ScheduleKind::linear, .lr = 3e-2, .warmup = 3, .total = 60};
  LossFunction loss = [this](const StepInputs& batch) {
    return mse_loss(model(dropout(batch.tensors[0], {.p = 0.1})), batch.tensors[1]);
  };

  explicit Training(TrainerOptions options, int64_t batch_size = 8)
      : loader(std::make_shared<Points>(), {.batch = collate}, {.batch_size = batch_size}) {
    const GeneratorScope scope(generator);
    model.add<nn::Linear>(2, 1);
    adam = std::make_unique<optim::Adam>(model.parameters(), optim::AdamOptions{.lr = 1e-2});
    options.schedule = schedule;
    trainer = std::make_unique<Trainer>(model, *adam, loader, loss, options);
  }
  void resume() {
    const GeneratorScope scope(generator);
    trainer->resume();
  }
  bool run(Callbacks callbacks = {}) {
    const GeneratorScope scope(generator);
    if (!callbacks.step) callbacks.step = [this](const StepReport& report) { losses.push_back(report.loss); };
    return trainer->run(callbacks);
  }
  std::vector<float> weights() { return test::flat_values(model.parameters()).to_vector<float>(); }
};

constexpr int64_t kSteps = 7;  // of an epoch of 50 points

TEST(Trainer, IsMeasuredBeforeEachCheckpointThatIsDue) {
  std::vector<int64_t> measured, checkpoints;
  const auto run = [&](TrainerOptions options) {
    measured.clear();
    checkpoints.clear();
    const test::TemporaryFolder folder;
    options.directory = folder.path();
    Training training(options);
    training.run({.measure =
                      [&](const EpochReport& report) {
                        EXPECT_EQ(checkpoints.size(), measured.size());
                        measured.push_back(report.step);
                      },
                  .checkpoint = [&](const TrainingState& state) { checkpoints.push_back(state.step); }});
  };
  run({.steps = 10, .save_every = 4});
  EXPECT_EQ(measured, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(checkpoints, (std::vector<int64_t>{4, 8, 10})) << "the last is of the end";
  run({.epochs = 2});
  EXPECT_EQ(measured, (std::vector<int64_t>{kSteps, 2 * kSteps}));
}

TEST(Trainer, TellsEachStepAndEpoch) {
  Training training({.epochs = 2});
  std::vector<StepReport> steps;
  std::vector<EpochReport> epochs;
  EXPECT_TRUE(training.run({.step = [&](const StepReport& report) { steps.push_back(report); },
                            .epoch = [&](const EpochReport& report) { epochs.push_back(report); }}));
  ASSERT_EQ(std::ssize(steps), 2 * kSteps);
  double sum = 0;
  int64_t samples = 0;
  for (int64_t i = 0; i < kSteps; ++i) {
    const StepReport& report = steps[static_cast<size_t>(i)];
    EXPECT_EQ(report.step, i + 1);
    EXPECT_EQ(report.epoch, 1);
    EXPECT_TRUE(report.samples == 8 || report.samples == 2) << "the rest comes at any time";
    samples += report.samples;
    EXPECT_GT(report.grad_norm, 0);
    EXPECT_EQ(report.lr, training.schedule.at(i)) << "the rate it was made with";
    sum += report.loss * static_cast<double>(report.samples);
  }
  EXPECT_EQ(samples, 50);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs[0].epoch, 1);
  EXPECT_EQ(epochs[1].step, 2 * kSteps);
  EXPECT_NEAR(epochs[0].loss, sum / 50, 1e-12) << "a mean over samples, not over batches";
  EXPECT_LT(epochs[1].loss, epochs[0].loss);
}

TEST(Trainer, SeveralBatchesAStepAreAsOne) {
  // 50 points in their order, a step: 24, 24 and 2, or 3, 3 and 1 batches of 8, the last of 2.
  const auto run = [](int64_t batch_size, int64_t accumulate) {
    Training training({});
    data::Loader<Point, Batch> loader(std::make_shared<Points>(), {.batch = collate},
                                      {.batch_size = batch_size, .shuffle = false});
    const auto loss = [&](const StepInputs& batch) {  // without dropout, whose masks differ
      return mse_loss(training.model(batch.tensors[0]), batch.tensors[1]);
    };
    const optim::Schedule schedule{.lr = 1e-2};
    Trainer trainer(training.model, *training.adam, loader, loss,
                    {.epochs = 2, .accumulate = accumulate, .clip = 1, .schedule = schedule});
    trainer.run({.step = [&](const StepReport& report) { training.losses.push_back(report.loss); }});
    return std::pair(training.losses, training.weights());
  };
  const auto whole = run(24, 1), parts = run(8, 3);
  ASSERT_EQ(whole.first.size(), 6u);
  ASSERT_EQ(parts.first.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(parts.first[i], whole.first[i], 1e-5);
  for (size_t i = 0; i < whole.second.size(); ++i) EXPECT_NEAR(parts.second[i], whole.second[i], 1e-5);
}

TEST(Trainer, StoppedAndResumedEqualsNeverStopped) {
  for (const int64_t accumulate : {1, 3})
    for (const int64_t save_every : {0, 4}) {
      SCOPED_TRACE(concat(accumulate, " batches a step, a checkpoint every ", save_every));
      const TrainerOptions options{.epochs = 3, .accumulate = accumulate, .save_every = save_every};
      Training whole(options);
      whole.run();
      for (const int64_t stop : {1, 3, 5}) {
        const test::TemporaryFolder folder;
        TrainerOptions saved = options;
        saved.directory = folder.path();
        Training begin(saved), end(saved);
        EXPECT_FALSE(begin.run({.stop = [&] { return begin.trainer->state().step >= stop; }}));
        end.resume();
        EXPECT_EQ(end.trainer->state().step, stop);
        EXPECT_TRUE(end.run());
        EXPECT_EQ(end.weights(), whole.weights());
        EXPECT_EQ(end.generator.offset(), whole.generator.offset());
        EXPECT_EQ(end.losses, std::vector<double>(whole.losses.begin() + stop, whole.losses.end()));
      }
    }
}

TEST(Trainer, TellsOfCheckpointsAndKeepsTwo) {
  const test::TemporaryFolder folder;
  Training training({.epochs = 3, .directory = folder.path()});
  std::vector<int64_t> saved;
  training.run({.checkpoint = [&](const TrainingState& state) { saved.push_back(state.step); }});
  EXPECT_EQ(saved, (std::vector<int64_t>{kSteps, 2 * kSteps, 3 * kSteps, 3 * kSteps}));
  EXPECT_FALSE(std::filesystem::exists(folder.file("checkpoint-7.safetensors")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("checkpoint-14.safetensors")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("checkpoint-21.safetensors")));
}

TEST(Trainer, PassesOverADamagedCheckpoint) {
  const test::TemporaryFolder folder;
  Training training({.epochs = 3, .directory = folder.path()});
  training.run();
  const std::string whole = folder.get("checkpoint-21.safetensors");
  folder.put("checkpoint-21.safetensors", whole.substr(0, whole.size() / 2));
  static std::string warning;
  const WarningHandler before = set_warning_handler([](const std::string& text) { warning = text; });
  Training resumed({.epochs = 3, .directory = folder.path()});
  resumed.resume();
  set_warning_handler(before);
  EXPECT_EQ(resumed.trainer->state().step, 14);
  EXPECT_NE(warning.find("passing over a damaged checkpoint"), std::string::npos) << warning;
  resumed.run();
  EXPECT_EQ(resumed.weights(), training.weights());
}

TEST(Trainer, OtherSettingsAndDataAreRefused) {
  const test::TemporaryFolder folder;
  Training({.epochs = 1, .directory = folder.path(), .settings = "lr = 1\n", .data = "a"}).run();
  Training other({.epochs = 2, .directory = folder.path(), .settings = "lr = 2\n", .data = "a"});
  const std::vector<float> before = other.weights();
  expect_error<CheckpointError>([&] { other.resume(); }, {"other settings", "lr = 1 (now 2)"});
  EXPECT_EQ(other.weights(), before);
  Training changed({.epochs = 2, .directory = folder.path(), .settings = "lr = 1\n", .data = "b"});
  expect_error<CheckpointError>([&] { changed.resume(); }, {"data have changed", "a, now b"});
  const test::TemporaryFolder empty_folder;
  Training none({.directory = empty_folder.path()});
  expect_error<CheckpointError>([&] { none.resume(); }, {"no checkpoint"});
}

TEST(Trainer, FinishEndsARunInTheMiddle) {
  Training training({});
  EXPECT_TRUE(training.run({.step = [&](const StepReport& report) {
    if (report.step == 10) training.trainer->finish();
  }}));
  EXPECT_EQ(training.trainer->state().step, 10);
}

TEST(Trainer, WhatCannotBeIsRefused) {
  expect_error<ConfigError>([] { Training({.accumulate = 0}); }, {"accumulate is 0"});
  Training training({.steps = 3});
  data::Loader<Point, Batch> loader(std::make_shared<Points>(), {.batch = collate});
  Trainer rows(training.model, *training.adam, loader,
               [&](const StepInputs& batch) { return training.model(batch.tensors[0]) + batch.tensors[0]; },
               {});
  expect_error<ShapeError>([&] { rows.run(); }, {"the loss of a batch is [32, 2]", "one number"});
  Trainer infinite(training.model, *training.adam, loader,
                   [&](const StepInputs& batch) { return sum(training.model(batch.tensors[0])) * INFINITY; },
                   {});
  expect_error<NumericError>([&] { infinite.run(); }, {"step 1 (epoch 1, sample 0): the loss is"});
  int64_t made = 0;
  data::Loader<Point, Batch> uneven(
      std::make_shared<Points>(),
      {.batch =
           [&made](std::span<const Point> points, std::span<const int64_t> numbers) {
             Batch batch = collate(points, numbers);
             if (made++ > 0) batch.inputs.constants.push_back(1);
             return batch;
           }},
      {.batch_size = 8, .prefetch = false});
  Trainer different(training.model, *training.adam, uneven,
                    [&](const StepInputs& batch) { return sum(training.model(batch.tensors[0])); },
                    {.accumulate = 2});
  expect_error<ConfigError>([&] { different.run(); }, {"0 and 1 constants"});
}

// ---- averages --------------------------------------------------------------------------------------------

using Weights = std::vector<float>;

Weights averaged_weights(Training& training) {
  const AveragedWeights averaged(*training.trainer);
  return training.weights();
}

// The weights after each step of a run, the same with or without averages.
std::vector<Weights> weights_of_steps(const TrainerOptions& options) {
  Training training(options);
  std::vector<Weights> all;
  training.run({.step = [&](const StepReport&) { all.push_back(training.weights()); }});
  return all;
}

Weights mean_of(const std::vector<Weights>& all, const std::vector<int64_t>& steps) {
  Weights mean;
  for (size_t i = 0; i < all[0].size(); ++i) {
    double sum = 0;
    for (const int64_t step : steps) sum += static_cast<double>(all[static_cast<size_t>(step - 1)][i]);
    mean.push_back(static_cast<float>(sum / static_cast<double>(steps.size())));
  }
  return mean;
}

void expect_near(const Weights& got, const Weights& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

TEST(Averages, AreTheMeanOfTheLastCheckpoints) {
  const std::vector<Weights> all = weights_of_steps({.steps = 22});
  Training by_epochs({.epochs = 3, .average = 2});
  std::vector<Weights> after_epochs;
  by_epochs.run({.epoch = [&](const EpochReport&) { after_epochs.push_back(averaged_weights(by_epochs)); }});
  ASSERT_EQ(after_epochs.size(), 3u);
  expect_near(after_epochs[0], mean_of(all, {7}));
  expect_near(after_epochs[1], mean_of(all, {7, 14}));
  expect_near(after_epochs[2], mean_of(all, {14, 21}));
  EXPECT_EQ(averaged_weights(by_epochs), after_epochs[2]);
  EXPECT_EQ(by_epochs.weights(), all[20]) << "the model has its own weights again";

  Training by_steps({.steps = 22, .average = 3, .save_every = 5});
  by_steps.run();
  expect_near(averaged_weights(by_steps), mean_of(all, {15, 20, 22}));
  Training none({.steps = 4, .average = 3});
  none.run();
  EXPECT_EQ(averaged_weights(none), all[3]) << "there was no checkpoint before";
}

TEST(Averages, AnExponentialOneFollowsItsFormula) {
  const std::vector<Weights> all = weights_of_steps({.steps = 10});
  Training training({.steps = 10, .ema = 0.8});
  Weights want = training.weights();
  training.run();
  for (const Weights& weights : all)
    for (size_t i = 0; i < want.size(); ++i) want[i] += 0.2f * (weights[i] - want[i]);
  expect_near(averaged_weights(training), want);
  EXPECT_EQ(training.weights(), all[9]);
}

TEST(Averages, StoppedAndResumedEqualsNeverStopped) {
  for (const TrainerOptions& options :
       {TrainerOptions{.epochs = 4, .average = 3}, TrainerOptions{.epochs = 3, .average = 2, .save_every = 5},
        TrainerOptions{.epochs = 3, .ema = 0.9}}) {
    SCOPED_TRACE(concat("average ", options.average, ", ema ", options.ema));
    Training whole(options);
    whole.run();
    for (const int64_t stop : {3, 7, 12, 16}) {
      const test::TemporaryFolder folder;
      TrainerOptions saved = options;
      saved.directory = folder.path();
      Training begin(saved), end(saved);
      EXPECT_FALSE(begin.run({.stop = [&] { return begin.trainer->state().step >= stop; }}));
      end.resume();
      EXPECT_EQ(averaged_weights(end), averaged_weights(begin));
      EXPECT_TRUE(end.run());
      EXPECT_EQ(end.weights(), whole.weights());
      EXPECT_EQ(averaged_weights(end), averaged_weights(whole));
    }
  }
}

// A run that ended in the middle of an epoch goes on as if it had been longer from the start.
TEST(Averages, TheEndOfARunIsNoCheckpointOfALongerOne) {
  Training whole({.steps = 15, .average = 2});
  whole.run();
  const test::TemporaryFolder folder;
  Training({.steps = 10, .average = 2, .directory = folder.path()}).run();
  Training longer({.steps = 15, .average = 2, .directory = folder.path()});
  longer.resume();
  longer.run();
  EXPECT_EQ(averaged_weights(longer), averaged_weights(whole));
}

TEST(Averages, WhatCannotBeIsRefused) {
  expect_error<ConfigError>([] { Training({.average = 2, .ema = 0.5}); }, {"contradict each other"});
  expect_error<ConfigError>([] { Training({.average = -1}); }, {"an average of -1 checkpoints"});
  expect_error<ConfigError>([] { Training({.ema = 1}); }, {"decay must be in [0, 1)"});
  const test::TemporaryFolder folder;
  Training({.epochs = 1, .directory = folder.path()}).run();
  Training averaged({.epochs = 2, .ema = 0.5, .directory = folder.path()});
  const Weights before = averaged.weights();
  expect_error<CheckpointError>([&] { averaged.resume(); }, {"'ema.0.weight' is missing"});
  EXPECT_EQ(averaged.weights(), before);
  const AveragedWeights scope(*averaged.trainer);
  expect_error<StateError>([&] { const AveragedWeights twice(*averaged.trainer); }, {"swapped in already"});
}

}  // namespace
}  // namespace heed::train
