// What models refuse, in which words, and the empty batches that they take.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/layers/layer_norm.h>
#include <heed/nn/layers/rms_norm.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>
#include <heed/optim/schedule.h>

#include "each_device.h"
#include "expect_error.h"

namespace heed::nn {
namespace {

using test::expect_error;

TransformerConfig small() {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 9;
  config.d_model = 16;
  config.heads = 2;
  config.d_ff = 32;
  config.encoder_layers = config.decoder_layers = 1;
  return config;
}

template <class Change>
void refuse(Change&& change, std::initializer_list<std::string> pieces) {
  TransformerConfig config = small();
  change(config);
  expect_error<ConfigError>([&] { Transformer model(config); }, pieces);
}

TEST(BadModel, SizesThatDoNotFit) {
  refuse([](auto& c) { c.heads = 3; }, {"d_model = 16", "not divisible by heads = 3"});
  refuse([](auto& c) { c.heads = 0; }, {"heads must be positive, got 0"});
  refuse([](auto& c) { c.d_ff = -1; }, {"d_ff must be positive, got -1"});
  refuse([](auto& c) { c.target_vocabulary = 0; }, {"target_vocabulary must be positive, got 0"});
  refuse([](auto& c) { c.decoder_layers = -2; }, {"1 encoder and -2 decoder layers"});
  refuse([](auto& c) { c.share_embeddings = true, c.source_vocabulary = 8; },
         {"shared embeddings need equal vocabularies", "8 and 9"});
  refuse([](auto& c) { c.set_dropout(1); }, {"dropout", "1", "[0, 1)"});
  refuse([](auto& c) { c.residual_dropout = std::nan(""); }, {"dropout", "nan"});
  refuse([](auto& c) { c.position = PositionKind::learned, c.max_length = 0; }, {"max_length > 0, got 0"});
  expect_error<ConfigError>([] { LayerNorm(0, 1e-5); }, {"LayerNorm", "0"});
  expect_error<ConfigError>([] { LayerNorm(4, 0); }, {"LayerNorm", "eps"});
  expect_error<ConfigError>([] { RMSNorm(0); }, {"RMSNorm", "0"});
  expect_error<ConfigError>([] { parse_norm_kind("batch"); }, {"unknown norm 'batch'"});
  expect_error<ConfigError>([] { Linear(0, 4); }, {"Linear", "0"});
  expect_error<ConfigError>([] { Embedding(5, 0); }, {"Embedding", "d_model = 0"});
}

TEST(BadModel, ASequenceLongerThanTheLearnedPositions) {
  TransformerConfig config = small();
  config.position = PositionKind::learned;
  config.max_length = 3;
  const Transformer model(config);
  expect_error<ShapeError>(
      [&] {
        model.encode(Tokens::packed({{3, 4, 5, 6}}));
      },
      {"a sequence of 4 tokens", "3 learned positions"});
}

TEST(BadModel, TokensOutsideTheVocabulary) {
  const Transformer model(small());
  expect_error<IndexError>(
      [&] {
        model.encode(Tokens::packed({{3, 9}}));
      },
      {"embedding: id 9 in row 1", "expected 0 to 8"});
  const Tensor ids = zeros({2, 3}, {.dtype = DType::i64});
  expect_error<ShapeError>([&] { Tokens::dense(ids, std::vector<int32_t>{1}); }, {"1 lengths", "[2, 3]"});
  expect_error<ShapeError>(
      [&] {
        Tokens::dense(ids, std::vector<int32_t>{1, 4});
      },
      {"length 4 of sequence 1", "[0, 3]"});
  expect_error<ShapeError>([&] { Tokens::dense(ids.flatten()); }, {"[sequences, length]", "[6]"});
  expect_error<ShapeError>(
      [&] {
        model.forward(Tokens::packed({{3}}), Tokens::packed({{3}, {4}}));
      },
      {"queries of 2 sequences with keys of 1"});
}

class Nameless : public Module {
 public:
  void visit(Visitor& v) override { v("", weight); }
  std::string describe() const override { return "Nameless"; }
  Tensor weight = zeros({2}).set_requires_grad();
};

class Twice : public Module {
 public:
  void visit(Visitor& v) override { v("weight", first), v("weight", second); }
  std::string describe() const override { return "Twice"; }
  Tensor first = zeros({2}).set_requires_grad(), second = zeros({2}).set_requires_grad();
};

TEST(BadModel, PartsWithoutANameOrWithTheSame) {
  Nameless nameless;
  expect_error<ConfigError>([&] { nameless.parameters(); }, {"empty name"});
  Twice twice;
  expect_error<ConfigError>([&] { twice.parameters(); }, {"'weight' is used twice"});
}

class EmptyBatch : public test::EachDevice {
 protected:
  static Tokens packed(const std::vector<std::vector<int64_t>>& sequences) {
    return Tokens::packed(sequences, device());
  }
};
HEED_ON_EACH_DEVICE(EmptyBatch);

TEST_P(EmptyBatch, NothingAtAllGivesNothing) {
  Transformer model(small());
  model.to(device());
  const Tokens none = packed({});
  const Tensor logits = model.forward(none, none);
  EXPECT_EQ(logits.shape(), (Shape{0, 9}));
  cross_entropy(logits, zeros({0}, {DType::i64, device()})).backward();
  EXPECT_EQ(model.parameters().gradient_norm(), 0);
  EXPECT_TRUE(greedy_search(model, none).empty());
}

TEST_P(EmptyBatch, ASourceOrTargetWithoutTokens) {
  TransformerConfig config = small();
  config.set_dropout(0);
  Transformer model(config);
  model.to(device());
  const Tokens source = packed({{}, {3, 4}}), target = packed({{1, 3}, {}});
  const Tensor logits = model.forward(source, target);
  EXPECT_EQ(logits.shape(), (Shape{2, 9}));
  cross_entropy(logits, tensor<int64_t>({3, 2}).to(device())).backward();
  for (const Parameter& parameter : model.parameters())
    EXPECT_TRUE(all_finite(parameter.tensor.grad())) << parameter.name;
  // A source without tokens is one that the decoder cannot see.
  EXPECT_TRUE(array_equal(logits.detach(), model.forward(packed({{}}), packed({{1, 3}})).detach()));
}

TEST(BadDecoding, OptionsThatCannotBe) {
  Transformer model(small());
  const Tokens source = Tokens::packed({{3, 4}});
  const auto refuse = [&](const DecodeOptions& options, std::initializer_list<std::string> pieces) {
    expect_error<ConfigError>([&] { beam_search(model, source, options); }, pieces);
    if (options.beam == 1) expect_error<ConfigError>([&] { greedy_search(model, source, options); }, pieces);
  };
  refuse({.max_length = 0}, {"max_length must be positive, got 0"});
  refuse({.max_length = 3, .min_length = 3}, {"min_length 3", "[0, max_length = 3)"});
  refuse({.beam = 0}, {"beam must be positive, got 0"});
  refuse({.beam = 10}, {"a beam of 10", "vocabulary of 9"});
  refuse({.end = 9}, {"the mark 9", "vocabulary of 9"});
  refuse({.beam = 2, .length_penalty = -1}, {"length_penalty", "-1"});
}

TEST(BadDecoding, ALimitOfPositionsEndsTheOutput) {
  TransformerConfig config = small();
  config.position = PositionKind::learned;
  config.max_length = 4;
  Transformer model(config);
  expect_error<ShapeError>(
      [&] { greedy_search(model, Tokens::packed({{3}}), {.max_length = 5, .min_length = 4}); },
      {"longer than the 4 learned positions"});
  EXPECT_TRUE(model.training()) << "decoding leaves the mode as it was";
}

TEST(BadOptimizer, NumbersThatCannotBe) {
  using optim::Adam, optim::AdamOptions;
  Linear model(3, 2);
  const auto refuse = [&](const AdamOptions& options, std::initializer_list<std::string> pieces) {
    expect_error<ConfigError>([&] { Adam adam(model.parameters(), options); }, pieces);
  };
  refuse({.lr = -1}, {"learning rate", "-1"});
  refuse({.lr = std::nan("")}, {"learning rate", "nan"});
  refuse({.beta2 = 1}, {"betas", "[0, 1)", "0.9 and 1"});
  refuse({.eps = 0}, {"eps must be positive, got 0"});
  refuse({.weight_decay = -0.5}, {"weight_decay", "-0.5"});
  Adam adam(model.parameters());
  expect_error<ConfigError>([&] { adam.step({.clip = -1}); }, {"clip", "-1"});
  expect_error<ConfigError>([&] { optim::clip_gradient_norm(model.parameters(), 0); },
                            {"max_norm must be positive, got 0"});
  expect_error<StateError>([&] { model.to(DType::bf16); }, {"an optimizer holds them", "before making"});
}

class BadOptimizerOn : public test::EachDevice {};
HEED_ON_EACH_DEVICE(BadOptimizerOn);

TEST_P(BadOptimizerOn, AGradientThatIsNotFiniteIsNamed) {
  Linear model(3, 2);
  model.to(device());
  optim::Adam adam(model.parameters());
  const auto spoil = [&] { sum(model(full({1, 3}, INFINITY, {.device = device()}))).backward(); };
  spoil();
  expect_error<NumericError>([&] { adam.step({.clip = 1}); },
                             {"step 1", "gradient norm is", "first bad gradient that of 'weight'", "skip"});
  EXPECT_EQ(adam.steps(), 0);
  expect_error<NumericError>([&] { optim::clip_gradient_norm(model.parameters(), 1); }, {"'weight'"});
  EXPECT_TRUE(adam.step({.clip = 1, .non_finite = optim::NonFinite::skip}).skipped());
}

TEST(BadOptimizer, StateOfAnotherModelIsNamed) {
  Linear one(3, 2), other(4, 2);
  optim::Adam adam(one.parameters()), target(other.parameters());
  expect_error<CheckpointError>([&] { target.load_state(adam.state()); },
                                {"'m.weight'", "f32 [2, 3]", "expected f32 [2, 4]"});
  auto state = target.state();
  state.pop_back();
  expect_error<CheckpointError>([&] { target.load_state(state); }, {"'v.bias' is missing"});
}

}  // namespace
}  // namespace heed::nn
