// Text models that decode as one.
#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/nn/decoding/ensemble.h>
#include <heed/nn/text/text_alignment.h>
#include <heed/nn/text/text_model.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"

namespace heed::nn {
namespace {

using data::TokenizerKind;
using test::expect_error;
using Texts = std::vector<std::string>;

const Texts kTexts{"abc", "h", "", "gfedcba", "ab", "hhhh"};

struct Variant {
  uint64_t seed = 7;  // of the weights, as they are drawn
  std::string symbols = "A B C D E F G H";
  int64_t decoder_layers = 2;
  int64_t max_output = 12;
  PositionKind position = PositionKind::sinusoidal;
  bool lowercase = false;
};

TextModel small_model(const Variant& variant = {}) {
  const Texts letters{"abcdefgh"}, symbols{variant.symbols};
  const auto source =
      data::train_tokenizer({.kind = TokenizerKind::characters, .lowercase = variant.lowercase}, {letters});
  const auto target = data::train_tokenizer({.kind = TokenizerKind::symbols}, {symbols});
  TransformerConfig config;
  config.source_vocabulary = source->vocab();
  config.target_vocabulary = target->vocab();
  config.d_model = 16;
  config.heads = 2;
  config.d_ff = 32;
  config.encoder_layers = 1;
  config.decoder_layers = variant.decoder_layers;
  config.position = variant.position;
  config.max_length = 10;
  Generator generator(variant.seed);
  auto model = std::make_shared<Transformer>(config, generator);
  model->eval();
  return TextModel(model, source, target, variant.max_output);
}

void expect_equal(const std::vector<std::vector<TextOutput>>& a,
                  const std::vector<std::vector<TextOutput>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (size_t n = 0; n < a[i].size(); ++n) {
      EXPECT_EQ(a[i][n].text, b[i][n].text);
      EXPECT_EQ(a[i][n].tokens, b[i][n].tokens);
      EXPECT_EQ(a[i][n].score, b[i][n].score);  // to the bit
    }
  }
}

TEST(TextEnsemble, OfOneModelIsThatModel) {
  const TextModel model = small_model();
  const TextOptions options{.beam = 4, .best = 3, .length_penalty = 0.5};
  expect_equal(TextModel::ensemble({model}).run(kTexts, options), model.run(kTexts, options));
}

TEST(TextEnsemble, SearchesWithTheMeanOfItsModels) {
  const TextModel a = small_model(), b = small_model({.seed = 8, .decoder_layers = 1});
  const TextModel both = TextModel::ensemble({a, b});
  EXPECT_EQ(both.models().size(), 2u);
  EXPECT_EQ(both.models()[1].get(), &b.model());  // shared, not copied
  const auto outputs = both.run(kTexts, {.beam = 3, .best = 2});
  Seq2SeqEnsemble ensemble({a.models().front(), b.models().front()});
  for (size_t i = 0; i < kTexts.size(); ++i) {
    if (kTexts[i].empty()) continue;
    std::vector<int64_t> source{data::kStart};
    for (const int64_t id : a.source().encode(kTexts[i])) source.push_back(id);
    source.push_back(data::kEnd);
    const auto want =
        beam_search(ensemble, Tokens::packed({source}), {.max_length = 12, .beam = 3, .best = 2}).front();
    for (size_t n = 0; n < 2; ++n) {
      EXPECT_EQ(outputs[i][n].tokens, want[n].tokens);
      EXPECT_NEAR(outputs[i][n].score, want[n].score, 1e-5);
    }
  }
  bool differs = false;
  for (const TextModel* one : {&a, &b}) {
    const auto alone = one->run(kTexts, {.beam = 3});
    for (size_t i = 0; i < kTexts.size(); ++i) differs |= alone[i][0].text != outputs[i][0].text;
  }
  EXPECT_TRUE(differs);
}

TEST(TextEnsemble, ThreadsChangeNoBit) {
  const TextModel both = TextModel::ensemble({small_model(), small_model({.seed = 8})});
  const TextOptions options{.beam = 3, .best = 3};
  set_thread_count(1);
  const auto want = both.run(kTexts, options);
  set_thread_count(2);
  expect_equal(both.run(kTexts, options), want);
}

TEST(TextEnsemble, OutputsAreDrawnAndForced) {
  const TextModel both = TextModel::ensemble({small_model(), small_model({.seed = 8})});
  // Of the most probable token alone there is one to draw: that of a search without a beam.
  const auto drawn = both.run(Texts{"abc", "hg"}, {.sample = SampleOptions{.top_k = 1}});
  const auto greedy = both.run(Texts{"abc", "hg"});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(drawn[i][0].text, greedy[i][0].text);
  EXPECT_EQ(both.run(Texts{"abc"}, {.beam = 2, .min_length = 4, .prefix = "B A"})[0][0].text.substr(0, 4),
            "B A ");
}

TEST(TextEnsemble, AnAlignmentIsTheMeanOfItsModels) {
  const TextModel a = small_model(), b = small_model({.seed = 8, .decoder_layers = 1});
  const Texts texts{"abc", "", "hg"};
  std::vector<std::vector<int64_t>> outputs(3);
  for (const int64_t id : a.target().encode("B A")) outputs[0].push_back(id);
  for (const int64_t id : a.target().encode("H G F")) outputs[2].push_back(id);
  const auto of_a = align(a, texts, outputs), of_b = align(b, texts, outputs);
  const auto of_both = align(TextModel::ensemble({a, b}), texts, outputs);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(of_both[i].source, of_a[i].source);
    ASSERT_EQ(of_both[i].weights.size(), of_a[i].weights.size());
    for (size_t k = 0; k < of_a[i].weights.size(); ++k)
      EXPECT_NEAR(of_both[i].weights[k], (of_a[i].weights[k] + of_b[i].weights[k]) / 2, 1e-6);
  }
  EXPECT_EQ(of_both[0].weights.size(), 6u);
}

TEST(TextEnsemble, HasTheLimitsOfAllItsModels) {
  const TextModel unbounded = small_model({.max_output = 20}),
                  table = small_model({.position = PositionKind::learned});
  const TextModel both = TextModel::ensemble({unbounded, table});
  EXPECT_EQ(both.max_output(), 12);
  EXPECT_EQ(unbounded.max_input(), kMaxTextTokens);
  EXPECT_EQ(both.max_input(), 8);  // of ten positions two are marks'
  expect_error<DataError>([&] { both.run("abcabcabc"); }, {"9 tokens", "at most 8"});
  for (const auto& outputs : both.run(kTexts, {.beam = 2, .best = 2, .max_length = 50, .min_length = 9}))
    for (const TextOutput& o : outputs) EXPECT_LE(o.tokens.size(), 10u);
}

TEST(TextEnsemble, RefusesModelsOfOtherVocabularies) {
  const TextModel model = small_model();
  const auto refuse = [&](const Variant& other, std::initializer_list<std::string> pieces) {
    expect_error<ConfigError>([&] { TextModel::ensemble({model, model, small_model(other)}); }, pieces);
  };
  refuse({.symbols = "A B C D E F G X"},
         {"the same target tokenizer", "model 3 is not the first model's: id 11 is 'X', not 'H'"});
  refuse({.symbols = "A B C"}, {"target tokenizer", "it has 7 ids, not 12"});
  refuse({.lowercase = true}, {"the same source tokenizer", "it makes letters small"});
  expect_error<ConfigError>([] { TextModel::ensemble({}); }, {"at least one model"});
}

TEST(TextEnsemble, IsLoadedFromTheFoldersOfItsModels) {
  const test::TemporaryFolder folder, second, third;
  const TextModel a = small_model(), b = small_model({.seed = 8}), c = small_model({.symbols = "X Y"});
  a.save(folder.path());
  b.save(second.path());
  c.save(third.path());
  const TextOptions options{.beam = 3, .best = 2};
  expect_equal(load_text_ensemble({folder.path(), second.path()}).run(kTexts, options),
               TextModel::ensemble({a, b}).run(kTexts, options));
  expect_equal(load_text_ensemble({folder.path()}).run(kTexts, options), a.run(kTexts, options));
  expect_error<ConfigError>(
      [&] {
        load_text_ensemble({folder.path(), third.path()});
      },
      {"model 2", "target tokenizer"});
  EXPECT_THROW(load_text_ensemble({folder.path(), third.file("none")}), IoError);
  expect_error<StateError>(
      [&] {
        TextModel::ensemble({a, b}).save(folder.path());
      },
      {"ensemble of 2 models"});
}

}  // namespace
}  // namespace heed::nn
