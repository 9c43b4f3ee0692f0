#include <filesystem>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/nn/decoding/decode.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>

#include "search_model.h"

namespace heed::nn {
namespace {

// Weights are kept packed between decodings: each change of them must be seen. What is recorded does not use
// the packed ones.
TEST(PackedWeights, FollowEveryChange) {
  const auto model = small_model(NormPlacement::post, PositionKind::sinusoidal, 7);
  model->to(DType::f32);
  model->eval();
  const Tokens source = Tokens::packed(kSources), target = Tokens::packed({{1, 3, 5}, {1, 4}, {1, 5, 6, 3}});
  std::vector<double> before;
  const auto expect_change = [&](const char* what) {
    const Tensor recorded = model->forward(source, target).detach();
    const NoGrad no_grad;
    EXPECT_LE(max(abs(model->forward(source, target) - recorded)).item<double>(), 1e-4) << what;
    const auto values = recorded.to(DType::f64).to_vector<double>();
    EXPECT_NE(values, before) << what << " changed nothing";
    before = values;
  };
  expect_change("the beginning");
  optim::Adam adam(model->parameters(), {.lr = 0.05});
  for (int step = 0; step < 2; ++step) {
    sum(model->forward(source, target)).backward();
    adam.step();
    expect_change("a step of the optimizer");
  }
  {
    const NoGrad no_grad;
    model->decoder.layers[1]->multihead_attn.in_proj_weight.slice(0, 5, 30).mul_(2);
  }
  expect_change("a write in place");
  const auto path = std::filesystem::temp_directory_path() / concat("heed_packed_", getpid(), ".safetensors");
  const auto other = small_model(NormPlacement::post, PositionKind::sinusoidal, 7);
  save_weights(*other, path.string());
  load_weights(*model, path.string());
  std::filesystem::remove(path);
  expect_change("other weights");
}

TEST(PackedWeights, ThreadsDecodeWithOneModel) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  model->to(DType::f32);
  model->eval();
  const DecodeOptions options{.max_length = 12, .min_length = 11};
  const Tokens source = Tokens::packed(kSources);
  const auto want = greedy_search(*model, source, options);
  for (int round = 0; round < 10; ++round) {
    {
      const NoGrad no_grad;  // so that the threads pack at the same time
      for (const Parameter& parameter : model->parameters()) parameter.tensor.bump_version();
    }
    std::vector<std::vector<Hypothesis>> got(4);
    std::vector<std::thread> threads;
    for (auto& result : got) threads.emplace_back([&] { result = greedy_search(*model, source, options); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& result : got)
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(result[i].tokens, want[i].tokens);
        EXPECT_EQ(result[i].score, want[i].score);
      }
  }
}

}  // namespace
}  // namespace heed::nn
