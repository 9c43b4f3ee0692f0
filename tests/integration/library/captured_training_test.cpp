// Training a Transformer on a CUDA device: captured steps give the bits of uncaptured ones, from whatever
// step on, and a repeated step neither allocates device memory nor waits for the device.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/generator.h>
#include <heed/core/ops.h>
#include <heed/data/tasks.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>
#include <heed/train/seq2seq.h>
#include <heed/train/trainer.h>

#include "flat_values.h"
#include "temporary_folder.h"

#ifdef HEED_TEST_EMULATED
#include <heed/kernels/simt/host/emulator.h>
#endif

namespace heed::train {
namespace {

nn::TransformerConfig small(nn::PositionKind position) {
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 12;
  config.d_model = 16;
  config.heads = 2;
  config.encoder_layers = config.decoder_layers = 1;
  config.d_ff = 24;
  config.max_length = 40;
  config.position = position;
  config.set_dropout(0.2);
  return config;
}

// Everything that a run needs, from one seed.
struct Training {
  Generator generator{5};
  std::unique_ptr<nn::Transformer> model;
  std::unique_ptr<optim::Adam> adam;
  data::PairLoader loader;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> losses;

  Training(Device device, TrainerOptions options, nn::PositionKind position = nn::PositionKind::sinusoidal,
           const RandomPositions& random = {})
      : loader(
            std::make_shared<data::TaskDataset>(
                data::TaskOptions{.task = "copy", .min_length = 2, .max_length = 9, .vocab = 12, .pairs = 90},
                data::Split::train),
            {.batch_size = 8, .window_batches = 4, .seed = 3}) {
    const GeneratorScope scope(generator);
    model = std::make_unique<nn::Transformer>(small(position));
    model->to(device);
    adam = std::make_unique<optim::Adam>(model->parameters(), optim::AdamOptions{.lr = 1e-3});
    options.clip = 1;
    options.schedule = {.kind = optim::ScheduleKind::linear, .lr = 3e-3, .warmup = 5, .total = 60};
    trainer = std::make_unique<Trainer>(*model, *adam, seq2seq_batches(loader, device, random),
                                        seq2seq_loss(*model), options);
  }
  void resume() {
    const GeneratorScope scope(generator);
    trainer->resume();
  }
  void train() {
    train([this](const StepReport& report) { losses.push_back(report.loss); });
  }
  void train(const std::function<void(const StepReport&)>& on_step) {
    const GeneratorScope scope(generator);
    trainer->run({.step = on_step});
  }
  std::vector<float> weights() const { return test::flat_values(model->parameters()).to_vector<float>(); }
};

TEST(CapturedTraining, GivesTheBitsOfUncapturedTraining) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  using nn::PositionKind;
  for (const PositionKind position : {PositionKind::sinusoidal, PositionKind::learned, PositionKind::alibi,
                                      PositionKind::relative, PositionKind::rotary, PositionKind::t5}) {
    SCOPED_TRACE(nn::name(position));
    const int64_t steps = position == PositionKind::sinusoidal ? 24 : 12;
    Training called(cuda_device(), {.steps = steps, .capture = false}, position),
        captured(cuda_device(), {.steps = steps}, position);
    called.train();
    captured.train();
    EXPECT_EQ(captured.losses.size(), static_cast<size_t>(steps));
    EXPECT_EQ(captured.losses, called.losses);
    EXPECT_EQ(captured.weights(), called.weights());
    EXPECT_EQ(captured.generator.offset(), called.generator.offset());
    EXPECT_GT(captured.trainer->graphs(), 1);
    EXPECT_EQ(called.trainer->graphs(), 0);
  }
}

TEST(CapturedTraining, RandomPositionsAreThoseOfTheCpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  using nn::PositionKind;
  for (const PositionKind position :
       {PositionKind::sinusoidal, PositionKind::learned, PositionKind::rotary}) {
    SCOPED_TRACE(nn::name(position));
    const RandomPositions random{.range = 30};
    Training called(cuda_device(), {.steps = 12, .capture = false}, position, random),
        captured(cuda_device(), {.steps = 12}, position, random), cpu(kCpu, {.steps = 12}, position, random);
    for (Training* training : {&called, &captured, &cpu}) training->train();
    EXPECT_EQ(captured.losses, called.losses);
    EXPECT_EQ(captured.weights(), called.weights());
    ASSERT_EQ(cpu.losses.size(), 12u);
    for (size_t i = 0; i < cpu.losses.size(); ++i) EXPECT_NEAR(captured.losses[i], cpu.losses[i], 1e-4) << i;
  }
}

TEST(RandomPositions, AreTheSameAfterResume) {
  const RandomPositions random{.range = 30};
  Training whole(kCpu, {.steps = 30}, nn::PositionKind::sinusoidal, random);
  whole.train();
  const test::TemporaryFolder folder;
  Training begin(kCpu, {.steps = 17, .directory = folder.path()}, nn::PositionKind::sinusoidal, random);
  begin.train();
  Training end(kCpu, {.steps = 30, .directory = folder.path()}, nn::PositionKind::sinusoidal, random);
  end.resume();
  end.train();
  EXPECT_EQ(end.weights(), whole.weights());
  Training plain(kCpu, {.steps = 30});
  plain.train();
  EXPECT_NE(plain.weights(), whole.weights());
}

TEST(CapturedTraining, SeveralBatchesAStepAreCapturedToo) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  Training called(cuda_device(), {.steps = 12, .accumulate = 3, .capture = false}),
      captured(cuda_device(), {.steps = 12, .accumulate = 3}), cpu(kCpu, {.steps = 12, .accumulate = 3});
  for (Training* training : {&called, &captured, &cpu}) training->train();
  EXPECT_EQ(captured.losses, called.losses);
  EXPECT_EQ(captured.weights(), called.weights());
  ASSERT_EQ(captured.losses.size(), 12u);
  for (size_t i = 0; i < cpu.losses.size(); ++i) EXPECT_NEAR(captured.losses[i], cpu.losses[i], 1e-4) << i;
}

TEST(CapturedTraining, AgreesWithTheCpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  Training cpu(kCpu, {.steps = 24}), cuda(cuda_device(), {.steps = 24});
  cpu.train();
  cuda.train();
  ASSERT_EQ(cuda.losses.size(), cpu.losses.size());
  for (size_t i = 0; i < cpu.losses.size(); ++i) EXPECT_NEAR(cuda.losses[i], cpu.losses[i], 1e-4) << i;
}

TEST(CapturedTraining, TwoRunsOfOneSeedGiveTheSameBits) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  Training first(cuda_device(), {.steps = 24}), second(cuda_device(), {.steps = 24});
  first.train();
  second.train();
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.weights(), second.weights());
}

TEST(CapturedTraining, StoppedAndResumedEqualsNeverStopped) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  Training whole(cuda_device(), {.steps = 30});
  whole.train();
  const test::TemporaryFolder folder;
  Training begin(cuda_device(), {.steps = 17, .directory = folder.path()});
  begin.train();
  Training end(cuda_device(), {.steps = 30, .directory = folder.path()});
  end.resume();
  end.train();
  EXPECT_EQ(end.weights(), whole.weights());
  EXPECT_EQ(end.trainer->state().loss_sum, whole.trainer->state().loss_sum);
  EXPECT_EQ(end.trainer->state().norm_sum, whole.trainer->state().norm_sum);
  EXPECT_EQ(end.generator.offset(), whole.generator.offset());
}

TEST(CapturedTraining, ALossThatIsNotFiniteStopsItAndChangesNothing) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const bool capture : {false, true}) {
    Training training(cuda_device(), {.steps = 20, .capture = capture});
    int64_t batches = 0;
    std::vector<float> before;
    try {
      training.train([&](const StepReport&) {
        if (++batches != 12) return;
        const NoGrad no_grad;
        training.model->output.bias.fill_(NAN);
        before = training.weights();
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const NumericError& error) {
      EXPECT_NE(std::string(error.what()).find("the loss is nan"), std::string::npos) << error.what();
    }
    const std::vector<float> after = training.weights();
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) {
      if (!std::isnan(before[i])) {
        ASSERT_EQ(after[i], before[i]);
      }
    }
  }
}

#ifdef HEED_TEST_EMULATED
TEST(CapturedTraining, ARepeatedStepNeitherAllocatesNorWaits) {
  Training training(cuda_device(), {});
  const GeneratorScope scope(training.generator);
  const data::PairBatch batch = *training.loader.next();
  CapturedStep step(cuda_device(), [&](const StepInputs& inputs) {
    const Seq2SeqBatch seen = batch_of(inputs);
    const Tensor loss =
        cross_entropy(training.model->forward(seen.source, seen.target), seen.labels, {.ignore = 0});
    loss.backward();
    return PooledVector<Tensor>{loss,
                                training.adam->step({.clip = 1, .non_finite = optim::NonFinite::skip}).norm};
  });
  for (int i = 0; i < 4; ++i) step(step_inputs(batch, cuda_device())).get();
  ASSERT_EQ(step.graphs(), 1);
  const emulator::Stats before = emulator::stats();
  const MemoryStats memory = allocator(cuda_device()).stats();
  for (int i = 0; i < 3; ++i) {
    training.adam->set_lr(1e-3 * (i + 1));
    step(step_inputs(batch, cuda_device()));
  }
  const emulator::Stats after = emulator::stats();
  EXPECT_EQ(after.graph_launches, before.graph_launches + 3);
  constexpr uint64_t kKernels = 32;  // of the graph, beside its products
  EXPECT_EQ(after.launches - before.launches, 3 * kKernels + 2) << "two new rates are written";
  EXPECT_EQ(after.copies, before.copies + 3) << "the inputs; a kernel of the graph reports the outputs";
  EXPECT_EQ(after.pageable_copies, before.pageable_copies);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.synchronizations, before.synchronizations);
  EXPECT_EQ(allocator(cuda_device()).stats().requests, memory.requests);
}
#endif

TEST(StepInputs, ArePaddedToFewShapesAndStandForTheSameBatch) {
  const std::vector<data::Pair> pairs{{{3, 4, 5}, {5, 4}}, {{6}, {7, 8, 9}}};
  const data::PairBatch batch = data::pack(pairs, std::vector<int64_t>{0, 1});
  const StepInputs exact = step_inputs(batch, kCpu), padded = step_inputs(batch, cuda_device());
  EXPECT_EQ(exact.constants, (PooledVector<int64_t>{5, 0, 4, 0}));
  EXPECT_EQ(padded.constants, (PooledVector<int64_t>{8, 0, 8, 0}));
  const Seq2SeqBatch seen = batch_of(exact);
  EXPECT_EQ(seen.source.ids.to_vector<int64_t>(), (std::vector<int64_t>{1, 3, 4, 5, 2, 1, 6, 2}));
  EXPECT_EQ(seen.source.positions.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2}));
  EXPECT_EQ(seen.target.segments.query_first(1), 3);
  for (const size_t side : {0, 4}) {
    const std::vector<int64_t> few = exact.tensors[side].to_vector<int64_t>(),
                               many = padded.tensors[side].to_vector<int64_t>();
    ASSERT_EQ(many.size(), 64u);
    for (size_t i = 0; i < many.size(); ++i) EXPECT_EQ(many[i], i < few.size() ? few[i] : -1);
    EXPECT_EQ(padded.tensors[side + 3].numel(), 8);
  }
  EXPECT_EQ(padded.tensors[2].to_vector<int64_t>(), (std::vector<int64_t>{0, 5, 8, 8, 8, 8, 8, 8}))
      << "in order, as Segments::on_device wants them";
  EXPECT_EQ(padded.tensors[8].to_vector<int64_t>()[7], data::kPad);
}

}  // namespace
}  // namespace heed::train
