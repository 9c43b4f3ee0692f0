// Low-rank adapters.
#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/layers/lora.h>
#include <heed/nn/models/language_model.h>
#include <heed/optim/adam.h>

#include "expect_error.h"
#include "flat_values.h"

namespace heed::nn {
namespace {

using test::expect_error;

LanguageModelConfig small() {
  LanguageModelConfig c = LanguageModelConfig::llama();
  c.vocabulary = 13;
  c.d_model = 16;
  c.heads = 4;
  c.key_heads = 2;
  c.d_ff = 24;
  c.layers = 2;
  return c;
}

struct Adapted {
  Generator generator{7};
  LanguageModel model{small(), generator};
  const Tokens tokens = Tokens::packed({{3, 1, 4, 1, 5}, {9, 2}});
  const Tensor targets = tensor(std::vector<int64_t>{1, 4, 1, 5, 9, 2, 6}, {7});

  // Queries and values of the first layer, which share a matrix with the keys, and a whole matrix.
  std::vector<LoraTarget> places() {
    return {{"v", &model.layers.layers[0]->self_attn.in_proj_weight, 24, 8},
            {"q", &model.layers.layers[0]->self_attn.in_proj_weight, 0, 16},
            {"down", &model.layers.layers[1]->self_attn.out_proj.weight}};
  }
  Tensor logits() {
    const NoGrad no_grad;
    return model.forward(tokens);
  }
};

double difference(const Tensor& x, const Tensor& y) { return max(abs(x - y)).item<double>(); }

TEST(Lora, ChangesNothingAtFirst) {
  Adapted a;
  const Tensor before = a.logits();
  Lora lora(a.model, a.places(), {.rank = 2}, a.generator);
  const LoraScope scope(lora);
  EXPECT_LE(difference(a.logits(), before), 1e-6) << "a matrix that is made has another path to its product";
}

TEST(Lora, TrainsTheAdaptersAlone) {
  Adapted a;
  const Parameters whole = a.model.parameters();
  const Tensor weights = test::flat_values(whole).clone();
  Lora lora(a.model, a.places(), {.rank = 2, .alpha = 6}, a.generator);
  const Parameters adapters = lora.parameters();
  ASSERT_EQ(adapters.size(), 6);
  EXPECT_EQ(adapters.numel(), 2 * (16 + 8) + 2 * (16 + 16) + 2 * (16 + 16));
  optim::Adam adam(adapters, {.lr = 1e-2});
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    Tensor loss;
    {
      const LoraScope scope(lora);
      loss = a.model.loss(a.tokens, a.targets);
    }
    loss.backward();
    for (const Parameter& parameter : whole) EXPECT_FALSE(parameter.tensor.requires_grad()) << parameter.name;
    EXPECT_TRUE(whole.with_gradient().empty());
    EXPECT_EQ(std::ssize(adapters.with_gradient()), 6);
    last = loss.item<double>();
    if (step == 0) first = last;
    adam.step();
  }
  EXPECT_LT(last, first - 0.05);
  EXPECT_EQ(difference(test::flat_values(whole), weights), 0) << "the model's own weights stay";
  const Tensor own = a.logits();
  {
    const LoraScope scope(lora);
    EXPECT_GT(difference(a.logits(), own), 1e-3);
  }
  EXPECT_EQ(difference(a.logits(), own), 0) << "without a scope the model is its own again";
}

// dB = s dW Aᵀ and dA = s Bᵀ dW, of the rows that have the adapter.
TEST(Lora, GradientsAreThoseOfTheProduct) {
  Adapted a;
  Tensor& handle = a.model.layers.layers[0]->self_attn.in_proj_weight;
  Lora lora(a.model, {{"v", &handle, 24, 8}}, {.rank = 2, .alpha = 6}, a.generator);
  const Parameters adapters = lora.parameters();
  const Tensor down = adapters[0].tensor, up = adapters[1].tensor;
  {
    const NoGrad no_grad;
    normal_(up, 0, 0.3, a.generator);
  }
  Tensor leaf;  // the same matrix as a leaf
  {
    const LoraScope scope(lora);
    leaf = handle.detach().clone();
    a.model.loss(a.tokens, a.targets).backward();
  }
  leaf.set_requires_grad(true);
  handle = leaf;
  a.model.loss(a.tokens, a.targets).backward();
  const Tensor gw = leaf.grad().slice(0, 24, 32);
  EXPECT_LE(difference(up.grad(), matmul(gw, down.detach().transpose(0, 1)) * 3.0), 1e-6);
  EXPECT_LE(difference(down.grad(), matmul(up.detach().transpose(0, 1), gw) * 3.0), 1e-6);
}

TEST(Lora, MergedItIsTheSame) {
  Adapted a;
  Lora lora(a.model, a.places(), {.rank = 2, .alpha = 6}, a.generator);
  {
    const NoGrad no_grad;
    for (const Parameter& parameter : lora.parameters()) normal_(parameter.tensor, 0, 0.3, a.generator);
  }
  const Tensor own = a.logits();
  Tensor adapted;
  {
    const LoraScope scope(lora);
    adapted = a.logits();
  }
  lora.merge();
  EXPECT_GT(difference(adapted, own), 1e-2);
  EXPECT_LE(difference(a.logits(), adapted), 1e-6);
  const LoraScope scope(lora);
  EXPECT_LE(difference(a.logits(), adapted), 1e-6) << "they count once";
}

TEST(Lora, RefusesWhatCannotBe) {
  Adapted a;
  const auto make = [&](std::vector<LoraTarget> targets, LoraOptions options = {}) {
    Lora lora(a.model, std::move(targets), options, a.generator);
  };
  Tensor* const weight = &a.model.layers.layers[0]->self_attn.in_proj_weight;
  EXPECT_THROW(make({}), ConfigError);
  EXPECT_THROW(make({{"q", weight}}, {.rank = 0}), ConfigError);
  expect_error<ConfigError>([&] { make({{"q", weight, 30, 8}}); }, {"q", "30", "38", "32"});
  expect_error<ConfigError>(
      [&] {
        make({{"q", weight, 0, 16}, {"k", weight, 8, 16}});
      },
      {"q", "k", "common"});
  expect_error<ConfigError>(
      [&] {
        make({{"norm", &a.model.layers.layers[0]->norm1.weight}});
      },
      {"norm", "matrix"});
}

}  // namespace
}  // namespace heed::nn
