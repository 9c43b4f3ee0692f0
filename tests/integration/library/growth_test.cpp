// The memory of a training step grows linearly with the batch and the depth of the model, and that of
// attention with its length: no matrix of weights, and nothing kept twice. By the allocator's own count,
// which is exact, but for what it gives back to the system, which only that can tell.
#include <fstream>
#include <functional>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/core/base/memory/allocator.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>

namespace heed {
namespace {

// The most bytes in use at once while `work` runs, beyond those before.
int64_t peak_of(const std::function<void()>& work) {
  const int64_t before = cpu_allocator().stats().in_use;
  cpu_allocator().reset_peak();
  work();
  return cpu_allocator().stats().peak - before;
}

int64_t resident_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;  // the second number
  return pages * sysconf(_SC_PAGESIZE);
}

int64_t training_peak(int64_t batch, int64_t layers) {
  return peak_of([&] {
    nn::TransformerConfig config;
    config.source_vocabulary = config.target_vocabulary = 20;
    config.d_model = 128;
    config.heads = 4;
    config.d_ff = 512;
    config.encoder_layers = config.decoder_layers = layers;
    nn::Transformer model(config);
    optim::Adam adam(model.parameters(), {.lr = 1e-4});
    const nn::Tokens tokens = nn::Tokens::dense(randint(3, 20, {batch, 16}));
    for (int step = 0; step < 2; ++step) {
      cross_entropy(model.forward(tokens, tokens), tokens.ids.flatten()).backward();
      adam.step({.clip = 1});
    }
  });
}

// Eight heads: the backward cuts the keys of one into more and more parts up to 8,192, each with a sum of its
// own.
int64_t attention_peak(int64_t length) {
  constexpr int64_t kHeads = 8, kWidth = 64;
  return peak_of([&] {
    const Tensor qkv = randn({length, 3 * kWidth}).set_requires_grad();
    const Segments segments = Segments::dense(1, length);
    attention_qkv(qkv, segments, {.heads = kHeads, .visibility = {.causal = Causal::top_left}})
        .backward(ones({length, kWidth}));
  });
}

// Each of three doublings of n from `first` on adds twice what the one before added, within 2 %.
void expect_linear(int64_t first, const std::function<int64_t(int64_t n)>& bytes) {
  int64_t n = first, last = bytes(n), added = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t now = bytes(n *= 2);
    if (i > 0) {
      EXPECT_NEAR(static_cast<double>(now - last), 2.0 * static_cast<double>(added),
                  0.04 * static_cast<double>(added))
          << "from " << n / 2 << " to " << n << ": " << last << " to " << now << " bytes";
    }
    added = now - last;
    last = now;
    EXPECT_GT(added, 0);
  }
}

// From 2,048 rows on, which are multiplied in one way, and whose norms are computed again for the backward.
TEST(Growth, MemoryOfAStepIsLinearInTheBatch) {
  expect_linear(128, [](int64_t batch) { return training_peak(batch, 1); });
}

TEST(Growth, MemoryOfAStepIsLinearInTheDepth) {
  expect_linear(1, [](int64_t layers) { return training_peak(4, layers); });
}

// The tensors that a model's parameters were drawn in are not kept beside the arena that they move to.
TEST(Growth, ParametersLeaveNothingBehind) {
  if (default_allocator_kind() == AllocatorKind::plain) GTEST_SKIP() << "the plain allocator keeps nothing";
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 20;
  config.d_model = 512;
  config.d_ff = 2048;
  config.encoder_layers = config.decoder_layers = 2;
  cpu_allocator().release_cached();
  const int64_t before = resident_bytes();
  nn::Transformer model(config);
  const int64_t bytes = model.parameters().numel() * 4;
  ASSERT_GT(bytes, 50 << 20);
  EXPECT_LT(resident_bytes() - before, bytes + bytes / 2);
}

TEST(Growth, MemoryOfAttentionIsLinearInTheLength) { expect_linear(2048, attention_peak); }

}  // namespace
}  // namespace heed
