#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "../support/expect_error.h"
#include "../support/temporary_folder.h"
#include "apps/common/best_epoch.h"
#include "apps/common/lines.h"
#include "apps/translate/corpus.h"
#include "apps/translate/pronunciations.h"
#include "apps/translate/scores.h"

namespace heed::apps {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;

TEST(Pronunciations, LinesOfTheDictionaryAreWordsAndPhonemes) {
  const std::string text = ";;; a comment\nread R EH1 D\nread(2) R IY1 D # present\n'bout B AW1 T\n";
  const data::TextPairs plain = parse_pronunciations(text, "f", false);
  EXPECT_EQ(plain.sources, (Texts{"read", "read", "'bout"}));
  EXPECT_EQ(plain.targets, (Texts{"R EH D", "R IY D", "B AW T"}));
  EXPECT_EQ(parse_pronunciations(text, "f", true).targets, (Texts{"R EH1 D", "R IY1 D", "B AW1 T"}));
  expect_error<DataError>([] { parse_pronunciations("a AH\nb\n", "f", false); }, {"f:2", "phonemes"});
  expect_error<DataError>([] { parse_pronunciations("a \xff\n", "f", false); }, {"f:1:3"});
  expect_error<DataError>([] { read_pronunciations("/no/such", false); }, {"/no/such"});
}

TEST(TextScores, TheNearestReferenceCounts) {
  EXPECT_EQ(score_texts({}, {}).texts, 0);
  const TextScores scores =
      score_texts({"R IY D", "R IY"}, {{"R EH D", "R IY D"}, {"K L AO R EH D", "R EH D"}});
  EXPECT_EQ(scores.texts, 2);
  EXPECT_DOUBLE_EQ(scores.text_error, 0.5);     // the first is right
  EXPECT_DOUBLE_EQ(scores.edit_rate, 2.0 / 6);  // of the second: one replaced, one added
  EXPECT_GT(scores.chrf, 50);
  EXPECT_DOUBLE_EQ(score_texts({"a b c d e"}, {{"a b c d e"}}).bleu, 100);
}

TEST(TextScores, IntervalsAreAroundTheScores) {
  std::vector<std::string> outputs;
  std::vector<data::References> references;
  for (int i = 0; i < 400; ++i) {  // a quarter is wrong in one of four words
    outputs.push_back(i % 4 == 0 ? "a b c x" : "a b c d");
    references.push_back({"a b c d"});
  }
  const TextIntervals found = intervals_of(outputs, references);
  EXPECT_DOUBLE_EQ(found.text_error.score, 0.25);
  EXPECT_DOUBLE_EQ(found.edit_rate.score, 0.0625);
  const TextScores scores = score_texts(outputs, references);
  EXPECT_DOUBLE_EQ(found.bleu.score, scores.bleu);
  EXPECT_DOUBLE_EQ(found.chrf.score, scores.chrf);
  // 1.96 standard deviations of a share of 1/4 of 400 are 0.0424.
  EXPECT_NEAR(found.text_error.low, 0.25 - 0.0424, 0.006);
  EXPECT_NEAR(found.text_error.high, 0.25 + 0.0424, 0.006);
  EXPECT_NEAR(found.edit_rate.high, found.text_error.high / 4, 1e-9);
  EXPECT_LT(found.bleu.low, scores.bleu);
  EXPECT_GT(found.bleu.high, scores.bleu);
  test::expect_error<DataError>([] { intervals_of({}, {}); }, {});
}

TEST(TextScores, SourcesAreAskedOnce) {
  data::TextPairs pairs;
  pairs.add("b", "1");
  pairs.add("a", "2");
  pairs.add("b", "3");
  const std::vector<Example> examples = group_by_source(pairs);
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].source, "b");
  EXPECT_EQ(examples[0].references, (Texts{"1", "3"}));
  EXPECT_EQ(examples[1].source, "a");
}

TEST(BestEpoch, IsTheOneWithTheLeast) {
  BestEpoch best(2);
  EXPECT_TRUE(best.update(1, 3.0));
  EXPECT_TRUE(best.update(2, 2.0));
  EXPECT_FALSE(best.update(3, 2.0));
  EXPECT_FALSE(best.exhausted());
  EXPECT_FALSE(best.update(4, std::nan("")));
  EXPECT_TRUE(best.exhausted());
  EXPECT_EQ(best.epoch(), 2);
  BestEpoch patient(0);
  for (int epoch = 1; epoch < 100; ++epoch) patient.update(epoch, epoch);
  EXPECT_FALSE(patient.exhausted());
}

TEST(LineReader, TakesLinesOfAnyEnd) {
  const test::TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    LineReader reader(folder.put("f", text));
    Texts lines;
    for (std::string line; reader.next(line);) lines.push_back(line);
    return lines;
  };
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "a\r\n\nb"),
            (Texts{"a", "", "b"}));
  EXPECT_EQ(read("a\n"), Texts{"a"});
  expect_error<DataError>([&] { read("a\n" + std::string((1 << 20) + 1, 'x')); }, {"f:2", "1048576 bytes"});
  expect_error<DataError>([&] { LineReader(folder.file("none")); }, {"cannot open", "none"});
}

class CorpusTest : public ::testing::Test {
 protected:
  DataSettings settings(const std::string& name) {
    DataSettings s;
    s.data = {folder_.file(name)};
    s.valid_share = s.test_share = 0.2;
    return s;
  }
  test::TemporaryFolder folder_;
};

TEST_F(CorpusTest, IsFilteredAndSplit) {
  std::string text = "a\tb\na\tb\n\tx\nsame\tsame\n";
  for (int i = 0; i < 200; ++i) text += concat("s", i, "\tt", i, "\n");
  folder_.put("pairs", text);
  const Corpus corpus = read_corpus(settings("pairs"));
  EXPECT_EQ(corpus.counts.duplicates, 1);
  EXPECT_EQ(corpus.counts.empty, 1);
  EXPECT_EQ(corpus.counts.kept, 202);
  EXPECT_EQ(corpus.splits.train.size() + corpus.splits.valid.size() + corpus.splits.test.size(), 202);
  EXPECT_GT(corpus.splits.test.size(), 20);
  EXPECT_NE(describe(corpus).find("left out: 1 empty, 1 duplicate"), std::string::npos);

  DataSettings other = settings("pairs");
  other.keep_duplicates = other.drop_equal = true;
  EXPECT_EQ(read_corpus(other).counts.kept, 202);
  other.max_length = 2;  // s0 to s9, and a twice
  EXPECT_EQ(read_corpus(other).counts.kept, 12);

  folder_.put("test", "q\tr\n\t\n");
  other = settings("pairs");
  other.test = folder_.file("test");
  const Corpus with_test = read_corpus(other);
  EXPECT_EQ(with_test.splits.test.sources, Texts{"q"});
  EXPECT_EQ(with_test.splits.train.size() + with_test.splits.valid.size(), 202);
}

TEST_F(CorpusTest, SeveralFilesAreMixed) {
  std::string small, large;
  for (int i = 0; i < 40; ++i) small += concat("a", i, "\tb\n");
  for (int i = 0; i < 400; ++i) large += concat("a", i, "\tc\n");
  folder_.put("small", small);
  folder_.put("large", large);
  Settings s;
  s.data = {folder_.file("small"), folder_.file("large")};
  s.valid_share = s.test_share = 0.2;
  s.source_tokenizer = s.target_tokenizer = data::TokenizerKind::characters;
  const Corpus corpus = read_corpus(s);
  EXPECT_EQ(corpus.counts.kept, 440);
  ASSERT_EQ(corpus.parts.size(), 2u);
  EXPECT_EQ(corpus.parts[0] + corpus.parts[1], corpus.splits.train.size());
  for (const std::string& source : corpus.splits.test.sources)  // one source, one part
    for (const std::string& other : corpus.splits.train.sources) EXPECT_NE(source, other);

  const Tokenizers tokenizers = train_tokenizers(s, s, corpus);
  const auto from_small = [&](double temperature) {
    s.mix_temperature = temperature;
    const TrainingPairs training = encode_training(corpus, tokenizers, s);
    EXPECT_EQ(training.pairs->size(), corpus.splits.train.size());
    int64_t count = 0;
    for (int64_t i = 0; i < training.pairs->size(); ++i) {
      const data::TokenIds target = training.pairs->get(0, i).target;
      count += tokenizers.target->decode(std::vector<int64_t>(target.begin(), target.end())) == "b";
    }
    return count;
  };
  EXPECT_EQ(from_small(1), corpus.parts[0]);
  const double root = std::sqrt(static_cast<double>(corpus.parts[0]) / static_cast<double>(corpus.parts[1]));
  EXPECT_NEAR(static_cast<double>(from_small(2)),
              root / (1 + root) * static_cast<double>(corpus.splits.train.size()), 1);
  s.max_tokens = 2;  // "a0" to "a9"
  EXPECT_EQ(encode_training(corpus, tokenizers, s).too_long,
            corpus.splits.train.size() - encode_training(corpus, tokenizers, s).pairs->size());
  s.max_tokens = 1;
  test::expect_error<DataError>([&] { encode_training(corpus, tokenizers, s); }, {"small", "--max-tokens 1"});
}

TEST_F(CorpusTest, AStreamGivesWhatMemoryGives) {
  std::string tsv = "same\tsame\n\tx\n";
  for (int i = 0; i < 6000; ++i) tsv += concat("word ", i % 5000, "\tWort ", i % 5000, "\n");
  folder_.put("pairs", tsv);
  folder_.put("more.po", "msgid \"\"\nmsgstr \"\"\n\nmsgid \"Open\"\nmsgstr \"Oeffnen\"\n");
  Settings s;
  s.data = {folder_.file("pairs"), folder_.file("more.po")};
  s.valid_share = s.test_share = 0.05;
  s.out = folder_.path();
  s.source_tokenizer = s.target_tokenizer = data::TokenizerKind::words;
  const Corpus held = read_corpus(s);
  const Tokenizers known = train_tokenizers(s, s, held);
  const TrainingPairs want = encode_training(held, known, s);
  s.stream = true;
  const Corpus corpus = read_corpus(s);
  EXPECT_EQ(corpus.splits.train.size(), 0);
  EXPECT_EQ(corpus.first.sources, held.first.sources);
  EXPECT_EQ(corpus.parts, held.parts);
  EXPECT_EQ(describe(corpus), describe(held));
  EXPECT_EQ(corpus.splits.valid.sources, held.splits.valid.sources);
  EXPECT_EQ(corpus.splits.test.targets, held.splits.test.targets);
  const Tokenizers tokenizers = train_tokenizers(s, s, corpus);
  EXPECT_EQ(tokenizers.source->serialize(), known.source->serialize());
  EXPECT_EQ(encode_training(corpus, tokenizers, s).pairs->fingerprint(), want.pairs->fingerprint());
}

TEST_F(CorpusTest, NothingToTrainOnIsAnError) {
  folder_.put("pairs", "\tb\na\t\n");
  expect_error<DataError>([&] { read_corpus(settings("pairs")); }, {"no pair is left", "2 empty"});
}

TEST_F(CorpusTest, TokenizersAreOneOrTwo) {
  Corpus corpus;
  corpus.splits.train.add("ab", "X Y");
  corpus.parts = {1};
  VocabularySettings s;
  s.source_tokenizer = s.target_tokenizer = data::TokenizerKind::characters;
  const Tokenizers one = train_tokenizers(s, {}, corpus);
  EXPECT_EQ(one.source, one.target);
  EXPECT_EQ(one.source->vocab(), 259 + 5);
  s.separate_vocabularies = s.lowercase = true;
  s.target_tokenizer = data::TokenizerKind::symbols;
  const Tokenizers two = train_tokenizers(s, {}, corpus);
  EXPECT_EQ(two.source->encode("AB"), two.source->encode("ab"));
  EXPECT_EQ(two.target->decode(two.target->encode("X  Y")), "X Y");
}

TEST(TranslateSettings, ContradictionsAreErrors) {
  const auto refuse = [](const std::function<void(Settings&)>& change, const std::string& message) {
    Settings s;
    s.data = {"f"};
    s.check();
    change(s);
    expect_error<ConfigError>([&] { s.check(); }, {message});
  };
  refuse([](Settings& s) { s.data.clear(); }, "--data");
  refuse([](Settings& s) { s.source_lines = "g"; }, "--source-lines");
  refuse([](Settings& s) { s.valid_share = 0.5, s.test_share = 0.6; }, "leave nothing");
  refuse([](Settings& s) { s.source_tokenizer = data::TokenizerKind::bytes; }, "--separate-vocabularies");
  refuse([](Settings& s) { s.separate_vocabularies = true; }, "--tie output");
  refuse([](Settings& s) { s.max_tokens = 4096; }, "no room");
  refuse([](Settings& s) { s.position = nn::PositionKind::learned, s.max_positions = 100; },
         "--max-positions 100");
  refuse([](Settings& s) { s.resume = s.force = true; }, "contradict");
  refuse([](Settings& s) { s.heads = 7; }, "not divisible");
}

}  // namespace
}  // namespace heed::apps
