#include <numeric>

#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/nn/text/text_alignment.h>

#include "../../support/expect_error.h"

namespace heed::nn {
namespace {

using Texts = std::vector<std::string>;
using data::TokenizerKind;

std::shared_ptr<const data::Tokenizer> tokenizer(TokenizerKind kind, const Texts& texts) {
  return data::train_tokenizer({.kind = kind}, {texts});
}

TextWords words(TokenizerKind kind, const Texts& known, const std::string& text) {
  const auto t = tokenizer(kind, known);
  return words_of(*t, t->encode(text));
}

TEST(TextWords, AreWhatStandsBetweenSpaces) {
  const Texts known{"the cat sat ."};
  TextWords w = words(TokenizerKind::words, known, "the cat, sat");  // "," is a byte
  EXPECT_EQ(w.texts, (Texts{"the", "cat,", "sat"}));
  EXPECT_EQ(w.word_of, (std::vector<int64_t>{0, 1, 1, 2}));
  w = words(TokenizerKind::characters, known, "the  cat");
  EXPECT_EQ(w.texts, (Texts{"the", "cat"}));
  EXPECT_EQ(w.word_of, (std::vector<int64_t>{0, 0, 0, 1, 1, 1, 1, 1}));
  w = words(TokenizerKind::bytes, {}, "h\u00e9 ho");
  EXPECT_EQ(w.texts, (Texts{"h\u00e9", "ho"}));
}

TEST(TextWords, OfOneWordAreItsCharacters) {
  TextWords w = words(TokenizerKind::characters, {"cat"}, "c\u00e9t");  // two bytes for one letter
  EXPECT_EQ(w.texts, (Texts{"c", "\u00e9", "t"}));
  EXPECT_EQ(w.word_of, (std::vector<int64_t>{0, 1, 1, 2}));
  w = words(TokenizerKind::symbols, {"K AE T"}, "K AE T");
  EXPECT_EQ(w.texts, (Texts{"K", "AE", "T"}));
  EXPECT_TRUE(words(TokenizerKind::symbols, {"K"}, "").texts.empty());
}

#ifdef HEED_HAVE_SENTENCEPIECE
TEST(TextWords, SubWordsAreJoined) {
  Texts known;
  for (int i = 0; i < 50; ++i) known.push_back("lower newest widest number " + std::to_string(i));
  const auto t = data::train_tokenizer({.kind = TokenizerKind::bpe, .max_vocab = 300}, {known});
  const TextWords w = words_of(*t, t->encode("widest lower \u4e2dno"));
  EXPECT_EQ(w.texts, (Texts{"widest", "lower", "\u4e2dno"}));
}
#endif

TextModel small_model() {
  const auto source = tokenizer(TokenizerKind::characters, {"abcdefgh "});
  const auto target = tokenizer(TokenizerKind::symbols, {"A B C D E F G H"});
  TransformerConfig config;
  config.source_vocabulary = source->vocab();
  config.target_vocabulary = target->vocab();
  config.d_model = 16;
  config.heads = 2;
  config.d_ff = 32;
  config.encoder_layers = 1;
  config.decoder_layers = 2;
  config.set_dropout(0);
  Generator generator(7);
  auto model = std::make_shared<Transformer>(config, generator);
  model->eval();
  return TextModel(model, source, target, 12);
}

std::vector<int64_t> ids(const data::Tokenizer& t, const std::string& text) {
  const data::TokenIds symbols = t.encode(text);
  return {symbols.begin(), symbols.end()};
}

TEST(TextAlignment, IsTheMeanCrossAttentionOfTheStepsThatMadeTheOutput) {
  const TextModel model = small_model();
  const std::vector<int64_t> output = ids(model.target(), "B A C");
  const TextAlignment a = align(model, {"ab c"}, {output}).front();
  EXPECT_EQ(a.source, (Texts{"ab", "c"}));
  EXPECT_EQ(a.output, (Texts{"B", "A", "C"}));

  // The same from a forward of its own: keys are <start> a b ␣ c <end>, queries <start> B A.
  const NoGrad no_grad;
  std::vector<int64_t> source{1};
  for (const int64_t id : ids(model.source(), "ab c")) source.push_back(id);
  source.push_back(2);
  AttentionRecord record;
  (void)model.model().forward(Tokens::packed({source}), Tokens::packed({{1, output[0], output[1]}}));
  Tensor sum = zeros({3, 6});
  for (const std::string layer : {"0", "1"})
    for (int64_t head = 0; head < 2; ++head)
      sum = sum + record.weights("decoder.layers." + layer + ".multihead_attn", 0, head);
  for (int64_t q = 0; q < 3; ++q) {
    const std::vector<float> row = sum.select(0, q).to_vector<float>();
    const float first = row[1] + row[2], second = row[3] + row[4];
    EXPECT_NEAR(a.at(q, 0), first / (first + second), 1e-6);
    EXPECT_NEAR(a.at(q, 1), second / (first + second), 1e-6);
    EXPECT_EQ(a.source_of(q), first >= second ? 0 : 1);
  }
}

TEST(TextAlignment, BatchesGiveWhatEachPairGivesAlone) {
  const TextModel model = small_model();
  const Texts texts{"abc", "", "h g f", "ab"};
  std::vector<std::vector<int64_t>> outputs{
      ids(model.target(), "A B"), ids(model.target(), "C"), {}, ids(model.target(), "H G F E")};
  const auto together = align(model, texts, outputs);
  for (size_t i = 0; i < texts.size(); ++i) {
    const TextAlignment alone = align(model, {texts[i]}, {outputs[i]}).front();
    EXPECT_EQ(together[i].source, alone.source);
    EXPECT_EQ(together[i].output, alone.output);
    ASSERT_EQ(together[i].weights.size(), alone.weights.size());
    for (size_t k = 0; k < alone.weights.size(); ++k)
      EXPECT_NEAR(together[i].weights[k], alone.weights[k], 1e-6);
  }
  EXPECT_TRUE(together[1].weights.empty() && together[2].weights.empty());
  EXPECT_EQ(together[3].weights.size(), 8u);
  EXPECT_NEAR(std::accumulate(together[3].weights.begin(), together[3].weights.end(), 0.0), 4, 1e-5);
}

TEST(TextAlignment, RefusesWhatFitsNot) {
  const TextModel model = small_model();
  test::expect_error<ShapeError>([&] { align(model, {"a"}, {}); }, {"0 outputs of 1"});
  test::expect_error<DataError>([&] { align(model, {std::string(5000, 'a')}, {{4}}); }, {"5000 tokens"});
  test::expect_error<IndexError>([&] { align(model, {"a"}, {{99}}); }, {"99"});
}

}  // namespace
}  // namespace heed::nn
