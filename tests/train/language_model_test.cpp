// Batches of packed sequences, their loss, and how well a data set is predicted.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/train/language_model.h>

#include "expect_error.h"

namespace heed::train {
namespace {

using data::TokenIds;

class Samples final : public data::Dataset<TokenIds> {
 public:
  explicit Samples(std::vector<TokenIds> samples) : samples_(std::move(samples)) {}
  int64_t size() const override { return std::ssize(samples_); }
  TokenIds get(int64_t, int64_t index) const override { return samples_[static_cast<size_t>(index)]; }
  std::string fingerprint() const override { return "samples"; }

 private:
  std::vector<TokenIds> samples_;
};

const std::vector<TokenIds> kSamples{{1, 5, 3, 4}, {1, 6}, {2, 2, 7, 8, 5}};

nn::LanguageModelConfig small(bool llama) {
  nn::LanguageModelConfig c = llama ? nn::LanguageModelConfig::llama() : nn::LanguageModelConfig::gpt2();
  c.vocabulary = 11;
  c.d_model = 16;
  c.heads = 4;
  c.key_heads = llama ? 2 : 0;
  c.d_ff = 24;
  c.layers = 2;
  c.max_length = 8;
  return c;
}

double loss_of(const nn::LanguageModel& model, std::span<const TokenIds> samples) {
  const Batch batch = language_model_collate(kCpu).batch(samples, {});
  return language_model_loss(model)(batch.inputs).item<double>();
}

TEST(LanguageModelBatches, SequencesDoNotSeeEachOther) {
  for (const bool llama : {false, true}) {
    Generator generator(3);
    const nn::LanguageModel model(small(llama), generator);
    const NoGrad no_grad;
    double sum = 0;
    for (const TokenIds& sample : kSamples)
      sum += loss_of(model, {&sample, 1}) * static_cast<double>(std::ssize(sample) - 1);
    EXPECT_NEAR(loss_of(model, kSamples), sum / 8, 1e-6) << "eight tokens are predicted";
    // Another neighbour changes nothing of what a sequence is.
    std::vector<TokenIds> others = kSamples;
    others[0] = {9, 9, 9, 9};
    const TokenIds& first = kSamples.front();
    EXPECT_NEAR(8 * loss_of(model, others) - 3 * loss_of(model, {&others.front(), 1}),
                8 * loss_of(model, kSamples) - 3 * loss_of(model, {&first, 1}), 1e-5);
  }
}

TEST(LanguageModelBatches, CountTheirTokens) {
  const auto collate = language_model_collate(kCpu, 4);
  const Batch batch = collate.batch(kSamples, {});
  EXPECT_EQ(batch.samples, 3);
  EXPECT_EQ(batch.tokens, 8);
  EXPECT_EQ(batch.inputs.tensors[0].to_vector<int64_t>(), (std::vector<int64_t>{1, 5, 3, 1, 2, 2, 7, 8}));
  EXPECT_EQ(batch.inputs.tensors.back().to_vector<int64_t>(), (std::vector<int64_t>{5, 3, 4, 6, 2, 7, 8, 5}));
  EXPECT_EQ(collate.size(kSamples[2]).rows, 4);
}

TEST(Prediction, IsThatOfAllTokens) {
  Generator generator(3);
  nn::LanguageModel model(small(true), generator);
  const Samples samples(kSamples);
  const Prediction whole = predict(model, samples, 8);
  EXPECT_EQ(whole.tokens, 8);
  EXPECT_NEAR(whole.mean(), loss_of(model, kSamples), 1e-6);
  EXPECT_NEAR(whole.perplexity(), std::exp(whole.mean()), 1e-9);
  EXPECT_NEAR(whole.bits_per_character(4), 8 * whole.mean() / std::log(2.0) / 4, 1e-6);
  EXPECT_NEAR(predict(model, samples, 4).loss, whole.loss, 1e-5) << "in more batches";
  EXPECT_TRUE(model.training()) << "as it was";
  test::expect_error<ConfigError>([&] { predict(model, samples, 3); }, {"4", "3"});
  EXPECT_EQ(predict(model, Samples({}), 8).mean(), 0);
}

}  // namespace
}  // namespace heed::train
