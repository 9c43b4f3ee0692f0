// Sentence encoders: folders as sentence-transformers writes them, and vectors that do not depend on the
// batch.
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/init.h>
#include <heed/nn/pretrained/pretrained.h>
#include <heed/nn/text/sentence_encoder.h>
#include <heed/nn/text/text_classifier.h>

#include "expect_error.h"
#include "temporary_folder.h"

namespace heed::nn {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;

// A small BERT with random weights that knows the letters and a few marks.
class Sentences : public ::testing::Test {
 protected:
  Sentences() {
    std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    int64_t count = 5;
    for (char c = 'a'; c <= 'z'; ++c, count += 2) vocabulary += std::string(1, c) + "\n##" + c + "\n";
    TextEncoderConfig config;
    config.vocabulary = count;
    config.d_model = 24;
    config.heads = 3;
    config.d_ff = 40;
    config.layers = 2;
    config.max_length = 16;
    Generator generator(7);
    TextEncoder model(config, generator);
    // Far from their small first values, so that texts differ.
    initialize(model, {{"*", Initializer::normal, 0.5}}, generator);
    save_pretrained(model, path());
    folder_.put("vocab.txt", vocabulary);
  }
  std::string path() const { return folder_.path(); }
  void pooling(const std::string& settings) const {
    std::filesystem::create_directories(root_ / "1_Pooling");
    folder_.put("1_Pooling/config.json", settings);
  }

  const test::TemporaryFolder folder_;
  const std::filesystem::path root_ = folder_.path();
};

TEST_F(Sentences, VectorsAreTheMeansOfStates) {
  const SentenceEncoder encoder = load_sentence_encoder(path());
  EXPECT_EQ(encoder.width(), 24);
  EXPECT_EQ(encoder.max_tokens(), 16);
  const Tensor vector = encoder.encode({"ab c"});
  ASSERT_EQ(vector.shape(), Shape({1, 24}));
  // [CLS] a ##b c [SEP]
  const NoGrad no_grad;
  const Tensor states = encoder.model().forward(Tokens::packed({{2, 5, 8, 9, 3}}));
  const Tensor mean = heed::mean(states, {.axes = {0}}), expected = mean / norm(mean);
  EXPECT_LT(max(abs(vector.select(0, 0) - expected)).item<float>(), 1e-6);
  EXPECT_NEAR(norm(vector).item<float>(), 1, 1e-6);
}

TEST_F(Sentences, TheBatchMakesNoDifference) {
  const SentenceEncoder encoder = load_sentence_encoder(path());
  const Texts texts{"a", "the quick brown fox", "", "zz top", "a", "one two three four"};
  int64_t reported = 0;
  const Tensor together = encoder.encode(texts, {.on_batch = [&](int64_t n) { reported += n; }});
  EXPECT_EQ(reported, 6);
  for (size_t i = 0; i < texts.size(); ++i) {
    const Tensor alone = encoder.encode({texts[i]});
    EXPECT_LT(max(abs(alone.select(0, 0) - together.select(0, static_cast<int64_t>(i)))).item<float>(), 1e-6)
        << texts[i];
  }
  const Tensor small = encoder.encode(texts, {.batch_tokens = 1});
  EXPECT_LT(max(abs(small - together)).item<float>(), 1e-6);
  EXPECT_EQ(encoder.encode({}).shape(), Shape({0, 24}));
}

TEST_F(Sentences, LongTextsAreCut) {
  folder_.put("sentence_bert_config.json", R"({"max_seq_length": 6, "do_lower_case": false})");
  const SentenceEncoder encoder = load_sentence_encoder(path());
  EXPECT_EQ(encoder.max_tokens(), 6);
  const Tensor vectors =
      encoder.encode({"a b c d e f g h i j k l m n o p q r s t u v", "a b c d", "a b c e"});
  EXPECT_EQ(max(abs(vectors.select(0, 0) - vectors.select(0, 1))).item<float>(), 0);
  EXPECT_GT(max(abs(vectors.select(0, 0) - vectors.select(0, 2))).item<float>(), 1e-3);
}

TEST_F(Sentences, PoolingIsWhatTheFolderSays) {
  const Tensor mean = load_sentence_encoder(path()).encode({"hello there"});
  pooling(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false})");
  EXPECT_EQ(max(abs(load_sentence_encoder(path()).encode({"hello there"}) - mean)).item<float>(), 0);
  pooling(R"({"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true})");
  const SentenceEncoder first = load_sentence_encoder(path());
  const Tensor vectors = first.encode({"hello there", "a"});
  EXPECT_GT(max(abs(vectors.select(0, 0) - mean.select(0, 0))).item<float>(), 1e-5);
  const NoGrad no_grad;
  const Tensor state = first.model().forward(Tokens::packed({{2, 5, 3}})).select(0, 0);
  EXPECT_LT(max(abs(vectors.select(0, 1) - state / norm(state))).item<float>(), 1e-6);
  pooling(R"({"pooling_mode_max_tokens": true})");
  expect_error<ConfigError>([&] { load_sentence_encoder(path()); }, {"pooling_mode_max_tokens"});
  pooling(R"({"pooling_mode_mean_tokens": false})");
  EXPECT_THROW(load_sentence_encoder(path()), ConfigError);
  pooling("[]");
  EXPECT_THROW(load_sentence_encoder(path()), CheckpointError);
}

TEST_F(Sentences, ASavedFolderGivesTheSameVectors) {
  folder_.put("sentence_bert_config.json", R"({"max_seq_length": 6})");
  const Texts texts{"hello there", "a b c d e f g h"};
  for (const char* settings : {R"({"pooling_mode_mean_tokens": true})",
                               R"({"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true})"}) {
    pooling(settings);
    const SentenceEncoder encoder = load_sentence_encoder(path());
    const std::string other = folder_.file("other");
    save_sentence_encoder(encoder, other);
    const SentenceEncoder back = load_sentence_encoder(other);
    EXPECT_EQ(back.max_tokens(), 6);
    EXPECT_EQ(back.pooling(), encoder.pooling());
    EXPECT_EQ(max(abs(back.encode(texts) - encoder.encode(texts))).item<float>(), 0);
  }
}

TEST_F(Sentences, VectorsHaveGradients) {
  const SentenceEncoder encoder = load_sentence_encoder(path());
  const Tokens tokens = Tokens::packed({encoder.tokenize("ab c"), encoder.tokenize("x")});
  const Tensor weights = randn({2, 24});
  encoder.model().set_requires_grad(true);
  sum(encoder.embed(tokens) * weights).backward();
  const Parameters parameters = encoder.model().parameters();
  for (int64_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].name;
    EXPECT_EQ(parameters.gradient(i).defined(), !name.starts_with("pooler")) << name;
  }
}

TEST(RankingLoss, IsTheCrossEntropyOfOnesOwnAnswer) {
  const Tensor questions = tensor(std::vector<float>{1, 0, 0.6f, 0.8f}, {2, 2}),
               answers = tensor(std::vector<float>{0.8f, 0.6f, 0, 1}, {2, 2});
  // Cosines: 0.8 and 0; 0.96 and 0.8.
  const double expected = (std::log1p(std::exp(5 * (0 - 0.8))) + std::log1p(std::exp(5 * (0.96 - 0.8)))) / 2;
  EXPECT_NEAR(ranking_loss(questions, answers, 5).item<float>(), expected, 1e-6);
  EXPECT_LT(ranking_loss(questions, questions, 100).item<float>(), 1e-3);
  EXPECT_THROW(ranking_loss(questions, zeros({3, 2})), ShapeError);
  EXPECT_THROW(ranking_loss(zeros({2}), zeros({2})), ShapeError);
}

TEST_F(Sentences, AClassifierIsLinearInThePooledStates) {
  const auto make = [&](std::vector<std::string> labels) {
    Generator generator(3);
    return std::make_unique<TextClassifier>(load_sentence_encoder(path()), std::move(labels), generator);
  };
  const auto classifier = make({"no", "perhaps", "yes"});
  classifier->eval();
  const NoGrad no_grad;
  const Tensor states = classifier->encoder().model().forward(Tokens::packed({{2, 5, 8, 9, 3}}));
  const Tensor logits =
      matmul(mean(states, {.axes = {0}, .keep = true}), classifier->head.weight.transpose(0, 1)) +
      classifier->head.bias;
  const Texts texts{"zz", "ab c"};
  const Tensor found = classifier->probabilities(texts);
  ASSERT_EQ(found.shape(), Shape({2, 3}));
  EXPECT_LT(max(abs(found.select(0, 1) - softmax(logits, -1).select(0, 0))).item<float>(), 1e-6);

  const std::string saved = folder_.file("saved");
  save_text_classifier(*classifier, saved);
  const auto back = load_text_classifier(saved);
  EXPECT_EQ(back->labels(), classifier->labels());
  EXPECT_EQ(max(abs(back->probabilities(texts) - found)).item<float>(), 0);
  EXPECT_THROW(make({"one"}), ConfigError);
  EXPECT_THROW(make({"one", "two", "one"}), ConfigError);
  EXPECT_THROW(load_text_classifier(path()), IoError);
}

TEST_F(Sentences, BFloat16IsNear) {
  const Texts texts{"the quick brown fox", "a"};
  const Tensor exact = load_sentence_encoder(path()).encode(texts);
  const Tensor near = load_sentence_encoder(path(), kCpu, DType::bf16).encode(texts);
  EXPECT_EQ(near.dtype(), DType::f32);
  EXPECT_GT(min(sum(exact * near, {.axes = {1}})).item<float>(), 0.99);
}

TEST_F(Sentences, WhatDoesNotFitIsRefused) {
  const SentenceEncoder encoder = load_sentence_encoder(path());
  expect_error<DataError>([&] { encoder.encode({"fine", "\xff"}); }, {"text 2"});
  EXPECT_THROW(encoder.encode({"a"}, {.batch_tokens = 0}), ConfigError);
  folder_.put(
      "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + [] {
        std::string more;
        for (int i = 0; i < 100; ++i) more += "w" + std::to_string(i) + "\n";
        return more;
      }());
  expect_error<ConfigError>([&] { load_sentence_encoder(path()); }, {"vocabulary of 57", "104"});
  std::filesystem::remove(root_ / "vocab.txt");
  EXPECT_THROW(load_sentence_encoder(path()), IoError);
  EXPECT_THROW(load_sentence_encoder(path() + "/none"), IoError);
}

}  // namespace
}  // namespace heed::nn
