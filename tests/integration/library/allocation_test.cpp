// From its fourth step on, training asks the system for no memory: not the loader, nor the forward, the loss,
// the backward, the clipping or Adam. This program counts every call of malloc and its relatives, and sets
// those apart that come from inside oneDNN.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/core/base/memory/allocator.h>
#include <heed/core/ops.h>
#include <heed/data/pair_loader.h>
#include <heed/data/tasks.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>
#include <heed/train/seq2seq.h>

#include "../replaced_malloc.h"

namespace {

std::atomic<bool> counting{false}, showing{false};
std::atomic<int64_t> ours{0}, onednn{0}, products{0};
thread_local bool inside = false;  // looking at the stack may allocate

// Whether a call came through oneDNN's library. The first few of ours are shown on standard error.
void count() {
  if (!counting.load(std::memory_order_relaxed) || inside) return;
  inside = true;
  void* frames[48];
  const int depth = backtrace(frames, 48);
  bool foreign = false;
  for (int i = 0; i < depth && !foreign; ++i) {
    Dl_info info;
    foreign = dladdr(frames[i], &info) != 0 && std::strstr(info.dli_fname, "dnnl") != nullptr;
  }
  if (foreign) {
    ++onednn;
  } else if (++ours <= 3 && showing) {
    backtrace_symbols_fd(frames, depth, STDERR_FILENO);
    static_cast<void>(!write(STDERR_FILENO, "\n", 1));
  }
  inside = false;
}

}  // namespace

static bool allocation_fails(const void*) {
  count();
  return false;
}

extern "C" {
// Called once for each of oneDNN's products: counted on the way.
int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  using Execute = int (*)(const void*, void*, int, const void*);
  static const auto next = reinterpret_cast<Execute>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  ++products;
  return next(primitive, stream, count, arguments);
}
}

namespace heed {
namespace {

struct Counts {
  int64_t ours, onednn, products;
};

// The tutorial's model.
class Training {
 public:
  Training(const data::TaskOptions& task, const data::LoaderOptions& options)
      : loader_(std::make_shared<data::TaskDataset>(task, data::Split::train), options),
        model_(config(), generator_),
        adam_(model_.parameters(), {.lr = 1e-4}) {}

  /// A step, or the end of an epoch. The loss.
  double step() {
    const std::optional<data::PairBatch> pairs = loader_.next();
    if (!pairs) return 0;
    const train::Seq2SeqBatch batch = train::to_tensors(*pairs, kCpu);
    const Tensor logits = model_.forward(batch.source, batch.target);
    const Tensor loss = cross_entropy(logits, batch.labels, {.ignore = data::kPad, .label_smoothing = 0.1});
    loss.backward();
    adam_.step({.clip = 1});
    return loss.item<double>();
  }

  Counts count(int steps) {
    ours = onednn = products = 0;
    counting = showing = true;
    for (int i = 0; i < steps; ++i) step();
    counting = showing = false;
    return {ours, onednn, products};
  }

 private:
  static nn::TransformerConfig config() {
    nn::TransformerConfig config;
    config.source_vocabulary = config.target_vocabulary = 20;
    config.d_model = 128;
    config.heads = 8;
    config.d_ff = 512;
    config.encoder_layers = config.decoder_layers = 3;
    return config;
  }

  Generator generator_{1};
  data::PairLoader loader_;
  nn::Transformer model_;
  optim::Adam adam_;
};

class Allocations : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (default_allocator_kind() == AllocatorKind::plain) GTEST_SKIP() << "the plain allocator keeps nothing";
    void* frames[1];
    backtrace(frames, 1);  // loads what it needs
    // The program's own functions must be the ones that are called.
    ours = 0;
    counting = true;
    void* volatile block = std::malloc(1);
    int64_t* volatile number = new int64_t;
    counting = showing = false;
    std::free(block);
    delete number;
    ASSERT_GE(ours.load(), 2) << "calls of malloc are not seen";
  }
};

INSTANTIATE_TEST_SUITE_P(Prefetch, Allocations, ::testing::Bool());

// A loader that prepares batches on its own thread may hold two at a time, but need not in any given step:
// ten steps without a call must come within a few tries.
void expect_none(Training& training, int steps, bool prefetch) {
  Counts counts = training.count(steps);
  for (int tries = 1; prefetch && counts.ours > 0 && tries < 5; ++tries) counts = training.count(steps);
  EXPECT_EQ(counts.ours, 0);
  EXPECT_LE(counts.onednn, 6 * counts.products) << "by oneDNN in " << counts.products << " products";
}

TEST_P(Allocations, NoneFromTheFourthStepOn) {
  Training training({.min_length = 8, .max_length = 8, .pairs = 32'000},
                    {.window_batches = 2, .prefetch = GetParam()});
  for (int i = 0; i < 3; ++i) training.step();
  expect_none(training, 10, GetParam());
}

TEST_P(Allocations, NoneForLengthsThatHaveComeBefore) {
  constexpr int kEpoch = 3 + 1;  // three batches and its end
  Training training({.min_length = 3, .max_length = 10, .pairs = 96},
                    {.shuffle = false, .prefetch = GetParam()});
  for (int i = 0; i < 3 * kEpoch; ++i) training.step();
  expect_none(training, 2 * kEpoch, GetParam());
}

}  // namespace
}  // namespace heed
