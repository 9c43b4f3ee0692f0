// The contract of docs/threads.md: what may be done from several threads at once, and around a fork. Run
// under the thread sanitizer too.
#include <atomic>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/data/pair_loader.h>
#include <heed/data/tasks.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>

#if defined(__SANITIZE_THREAD__)
#define HEED_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEED_TSAN 1
#endif
#endif

namespace heed {
namespace {

// A small model with dropout, a loader and an optimizer of its own.
class Training {
 public:
  explicit Training(uint64_t seed, bool prefetch = false)
      : generator_(seed),
        loader_(std::make_shared<data::TaskDataset>(
                    data::TaskOptions{
                        .min_length = 2, .max_length = 6, .pairs = 64, .valid_pairs = 0, .seed = seed},
                    data::Split::train),
                {.batch_size = 8, .prefetch = prefetch, .seed = seed}),
        model_(config(seed), generator_),
        adam_(model_.parameters(), {.lr = 1e-3}) {}

  void run(int steps) {
    const GeneratorScope scope(generator_);
    for (int done = 0; done < steps;) {
      const std::optional<data::PairBatch> batch = loader_.next();
      if (!batch) continue;
      step(*batch);
      ++done;
    }
  }

  nn::Transformer& model() { return model_; }

  std::vector<float> weights() {
    std::vector<float> all;
    for (const Parameter& parameter : model_.parameters()) {
      const std::vector<float> values = parameter.tensor.to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  static nn::TransformerConfig config(uint64_t seed) {
    nn::TransformerConfig config;
    config.source_vocabulary = config.target_vocabulary = 20;
    config.d_model = 32;
    config.heads = 2;
    config.d_ff = 64;
    config.encoder_layers = config.decoder_layers = 1;
    config.norm = seed % 2 ? nn::NormPlacement::pre : nn::NormPlacement::post;
    return config;
  }

  static nn::Tokens tokens(const data::TokenIds& ids, const data::Sequences& rows) {
    return {tensor(ids, {static_cast<int64_t>(ids.size())}),
            Segments(rows.first, rows.length, rows.first, rows.length)};
  }

  void step(const data::PairBatch& batch) {
    const Tensor logits =
        model_.forward(tokens(batch.source_ids, batch.source), tokens(batch.target_ids, batch.target));
    cross_entropy(logits, tensor(batch.labels, {logits.size(0)}), {.ignore = data::kPad}).backward();
    adam_.step({.clip = 1});
  }

  Generator generator_;
  data::PairLoader loader_;
  nn::Transformer model_;
  optim::Adam adam_;
};

constexpr int kSteps = 12;

std::vector<float> trained(uint64_t seed, bool prefetch = false) {
  Training training(seed, prefetch);
  training.run(kSteps);
  return training.weights();
}

TEST(Threads, ModelsThatTrainSideBySideEachGetTheirSerialResult) {
  const std::vector<float> first = trained(1), second = trained(2);
  for (const int pool : {1, 4}) {
    set_thread_count(pool);
    std::vector<std::vector<float>> got(3);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < got.size(); ++i)
      threads.emplace_back([&, i] { got[i] = trained(1 + i % 2, i == 1); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(got[0], first) << pool << " threads";
    EXPECT_EQ(got[1], second) << pool << " threads";
    EXPECT_EQ(got[2], first) << pool << " threads, a second model of the same seed";
  }
}

TEST(Threads, AGeneratorScopeEndsWithItsBlockAndItsThread) {
  Generator outer(1), inner(2);
  Generator* const process = &default_generator();
  {
    const GeneratorScope a(outer);
    {
      const GeneratorScope b(inner);
      EXPECT_EQ(&default_generator(), &inner);
      std::thread([&] { EXPECT_EQ(&default_generator(), process); }).join();
    }
    EXPECT_EQ(&default_generator(), &outer);
  }
  EXPECT_EQ(&default_generator(), process);
}

TEST(Threads, OneModelAnswersSeveralThreads) {
  Training training(1);
  training.run(2);
  nn::Transformer& model = training.model();
  model.eval();
  const nn::Tokens source = nn::Tokens::packed({{1, 3, 4, 2}, {1, 5, 2}});
  const auto answer = [&] {
    const NoGrad no_grad;
    return nn::greedy_search(model, source, {.max_length = 6});
  };
  const auto want = answer();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const auto got = answer();
      right += got[0].tokens == want[0].tokens && got[1].score == want[1].score;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

TEST(Threads, AGraphMayReadTheLeavesOfAnother) {
  const Tensor table = randn({50, 16});
  std::vector<double> sums(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sums.size(); ++i)
    threads.emplace_back([&, i] {
      const Tensor scale = full({16}, 2).set_requires_grad();
      for (int k = 0; k < 20; ++k) sum(table * scale).backward();
      sums[i] = sum(scale.grad()).item<double>();
    });
  for (std::thread& thread : threads) thread.join();
  for (const double s : sums) EXPECT_EQ(s, sums[0]);
}

#ifndef HEED_TSAN  // which does not follow the fork of a program with threads
TEST(Threads, AForkInTheMiddleLeavesBothSidesWorking) {
  set_thread_count(4);
  const std::vector<float> want = trained(1);
  Training warm(2);  // this thread's child will use it: all that is made once has been made
  warm.run(1);
  std::atomic<bool> stop{false}, ready{false};
  std::thread busy([&] {
    Training training(2, true);
    for (; !stop; ready = true) training.run(1);
  });
  while (!ready) std::this_thread::yield();
  for (int i = 0; i < 12; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      _exit(trained(1) == want ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "fork " << i << ": " << status;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(trained(1), want);
}
#endif

}  // namespace
}  // namespace heed
