// What the captured training step of the tutorial's model consists of: its nodes are counted, since each
// costs a GPU about as much as the work of a small one.
#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/generator.h>
#include <heed/core/ops.h>
#include <heed/data/tasks.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>
#include <heed/train/seq2seq.h>

#ifdef HEED_TEST_EMULATED
#include <heed/kernels/simt/host/emulator.h>
#endif

namespace heed::train {
namespace {

// Layers and widths are the tutorial's, on which the number of nodes depends; the batch is small.
template <class F>
void with_captured_step(DType dtype, const F& f) {
  Generator generator(5);
  const GeneratorScope scope(generator);
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 20;
  config.d_model = 128;
  config.heads = 8;
  config.encoder_layers = config.decoder_layers = 3;
  config.d_ff = 512;
  nn::Transformer model(config);
  model.to(dtype);
  model.to(cuda_device());
  optim::Adam adam(model.parameters(), {.lr = 1e-3});
  const auto pairs = std::make_shared<data::TaskDataset>(
      data::TaskOptions{.task = "copy_reverse", .min_length = 10, .max_length = 10, .pairs = 4},
      data::Split::train);
  data::PairLoader loader(pairs, {.batch_size = 4, .window_batches = 1, .seed = 3});
  const StepInputs inputs = step_inputs(*loader.next(), cuda_device());
  CapturedStep step(cuda_device(), [&](const StepInputs& in) {
    const Seq2SeqBatch batch = batch_of(in);
    const Tensor loss = cross_entropy(model.forward(batch.source, batch.target), batch.labels, {.ignore = 0});
    loss.backward();
    return PooledVector<Tensor>{loss, adam.step({.clip = 1, .non_finite = optim::NonFinite::skip}).norm};
  });
  step(inputs).get();
  EXPECT_EQ(step.nodes(), 0) << "the first call records nothing";
  step(inputs).get();
  f(step, inputs);
}

int64_t nodes_of_a_step(DType dtype) {
  int64_t nodes = 0;
  with_captured_step(dtype, [&](CapturedStep& step, const StepInputs&) { nodes = step.nodes(); });
  return nodes;
}

TEST(CapturedNodes, OfTheTutorialsStep) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  if (device_name(cuda_device()).find("emulated") == std::string::npos)
    GTEST_SKIP() << "a product may be several nodes on a GPU";
  EXPECT_LE(nodes_of_a_step(DType::bf16), 143);
  EXPECT_LE(nodes_of_a_step(DType::f32), 143);
}

#ifdef HEED_TEST_EMULATED
// The rest are products, which are not ours, the first kernel, and those beside them and where they join.
TEST(CapturedNodes, HalfOfThemMayBeginBeforeTheOneInFrontHasEnded) {
  const emulator::Config saved = emulator::config();
  emulator::config().compute_capability = 90;
  with_captured_step(DType::bf16, [](CapturedStep& step, const StepInputs& inputs) {
    const uint64_t before = emulator::stats().early_launches;
    step(inputs).get();
    EXPECT_EQ(emulator::stats().early_launches - before, 70u);
  });
  emulator::config() = saved;
}
#endif

}  // namespace
}  // namespace heed::train
