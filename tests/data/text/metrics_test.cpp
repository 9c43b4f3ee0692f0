// Metrics of texts: what sacrebleu and jiwer make of the same texts (fixtures/write_metrics.py), and by hand.
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/text/metrics/bleu.h>
#include <heed/data/text/metrics/bootstrap.h>
#include <heed/data/text/metrics/chrf.h>
#include <heed/data/text/metrics/error_rate.h>
#include <heed/data/text/metrics/ter.h>

#include "../../support/expect_error.h"

namespace heed::data {
namespace {

using test::expect_error;

const std::string kFolder = HEED_FIXTURES "/metrics/";

std::vector<std::vector<std::string>> read_table(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    rows.emplace_back(1);
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\t') {
        rows.back().emplace_back();
      } else if (line[i] == '\\') {
        const char next = line[++i];
        rows.back().back() += next == 'n' ? '\n' : next == 't' ? '\t' : next;
      } else {
        rows.back().back() += line[i];
      }
    }
  }
  return rows;
}

struct Corpus {
  std::vector<std::string> hypotheses;
  std::vector<References> references;
};

const Corpus& corpus() {
  static const Corpus result = [] {
    Corpus read;
    for (const std::vector<std::string>& row : read_table(kFolder + "segments.tsv")) {
      read.hypotheses.push_back(row[0]);
      read.references.emplace_back(row.begin() + 1, row.end());
    }
    return read;
  }();
  return result;
}

// In the order of the table's columns.
const std::vector<std::pair<std::string, std::shared_ptr<TextMetric>>>& metrics() {
  static const std::vector<std::pair<std::string, std::shared_ptr<TextMetric>>> all{
      {"BLEU", std::make_shared<Bleu>()},
      {"BLEU effective", std::make_shared<Bleu>(BleuOptions{.effective_order = true})},
      {"BLEU char", std::make_shared<Bleu>(BleuOptions{.tokenizer = BleuTokenizer::characters})},
      {"chrF", std::make_shared<Chrf>()},
      {"chrF++", std::make_shared<Chrf>(ChrfOptions{.word_order = 2})},
      {"TER", std::make_shared<Ter>()},
      {"TER cased", std::make_shared<Ter>(TerOptions{.case_sensitive = true})},
      {"WER", std::make_shared<ErrorRate>()},
      {"CER", std::make_shared<ErrorRate>(ErrorRateOptions{.unit = ErrorUnit::characters})}};
  return all;
}

// The fixtures have ten digits.
void expect_same(double got, const std::string& expected, const std::string& what) {
  const double value = std::stod(expected);
  EXPECT_NEAR(got, value, 1e-9 * std::max(1.0, std::abs(value))) << what;
}

TEST(TextMetrics, AgreeWithSacrebleuAndJiwer) {
  const auto rows = read_table(kFolder + "scores.tsv");
  const size_t segments = corpus().hypotheses.size();
  ASSERT_GE(segments, 200u);
  ASSERT_EQ(rows.size(), segments + 4);
  for (size_t m = 0; m < metrics().size(); ++m) {
    const auto& [title, metric] = metrics()[m];
    ASSERT_EQ(rows[0][m + 1], title);
    for (size_t i = 0; i < segments; ++i)
      expect_same(metric->sentence_score(corpus().hypotheses[i], corpus().references[i]), rows[i + 1][m + 1],
                  title + " of segment " + std::to_string(i) + ": " + corpus().hypotheses[i]);
    expect_same(metric->corpus_score(corpus().hypotheses, corpus().references), rows[segments + 1][m + 1],
                title);
  }
}

// Of 4000 resamples, whose random numbers differ: half an interval is known to about 3 %.
TEST(TextMetrics, HaveSacrebleusIntervals) {
  const auto rows = read_table(kFolder + "scores.tsv");
  const std::vector<std::string>&means = rows[rows.size() - 2], &halves = rows.back();
  ASSERT_EQ(means[0], "mean");
  ASSERT_GE(means.size(), 8u);
  for (size_t m = 0; m + 1 < means.size(); ++m) {
    const auto& [title, metric] = metrics()[m];
    const Interval interval =
        bootstrap(*metric, metric->statistics(corpus().hypotheses, corpus().references), {.resamples = 4000});
    const double half = std::stod(halves[m + 1]);
    EXPECT_NEAR(interval.mean, std::stod(means[m + 1]), 0.1 * half) << title;
    EXPECT_NEAR((interval.high - interval.low) / 2, half, 0.1 * half) << title;
  }
}

TEST(TextMetrics, OfPerfectAndOfNoText) {
  const std::string text = "a text that is long enough";
  for (const auto& [title, metric] : metrics()) {
    const bool counts_errors = title.find("ER") != std::string::npos;
    EXPECT_NEAR(metric->sentence_score(text, {text}), counts_errors ? 0 : 100, 1e-12) << title;
    EXPECT_EQ(metric->sentence_score("", {text}), counts_errors ? 100 : 0) << title;
    EXPECT_EQ(metric->sentence_score(text, {""}), counts_errors ? 100 : 0) << title;
    EXPECT_EQ(metric->sentence_score("", {""}), 0) << title;
    EXPECT_NEAR(metric->sentence_score(text, {"nothing", text, ""}), counts_errors ? 0 : 100, 1e-12) << title;
  }
}

TEST(TextMetrics, TokensOf13a) {
  EXPECT_EQ(tokenize_13a("Hello, world! It's 3.5% (of 1,000)."), "Hello , world ! It's 3.5 % ( of 1,000 ) .");
  EXPECT_EQ(tokenize_13a("1990-2000 state-of-the-art .5 5."), "1990 - 2000 state-of-the-art . 5 5 .");
  EXPECT_EQ(tokenize_13a("&quot;a&amp;lt;b&quot; <skipped>x"), "\" a < b \" x");
  EXPECT_EQ(tokenize_13a("of-\nten\nbroken \n"), "often broken");
  EXPECT_EQ(tokenize_13a(""), "");
}

TEST(TextMetrics, PartsOfBleu) {
  const Bleu bleu;
  const Bleu::Parts parts =
      bleu.parts(bleu.statistics("the cat sat on a mat", {"the cat sat on the red mat"}));
  EXPECT_EQ(parts.length, 6);
  EXPECT_EQ(parts.reference_length, 7);
  EXPECT_DOUBLE_EQ(parts.brevity_penalty, std::exp(1 - 7.0 / 6));
  EXPECT_DOUBLE_EQ(parts.precision[0], 100 * 5 / 6.0);
  EXPECT_DOUBLE_EQ(parts.precision[1], 100 * 3 / 5.0);
  EXPECT_DOUBLE_EQ(parts.precision[2], 100 * 2 / 4.0);
  EXPECT_DOUBLE_EQ(parts.precision[3], 100 * 1 / 3.0);
  EXPECT_NEAR(parts.score, parts.brevity_penalty * 100 * std::pow(5 / 6.0 * 3 / 5 * 2 / 4 / 3, 0.25), 1e-12);
  // Of two references that are as close the shorter one.
  EXPECT_EQ(bleu.parts(bleu.statistics("a b c", {"a b c d", "a b"})).reference_length, 2);
}

TEST(TextMetrics, AnOrderWithoutMatchCountsAsHalfAMatch) {
  const Bleu bleu;
  const Bleu::Parts parts = bleu.parts(bleu.statistics("a b x c d", {"a b y c d"}));
  EXPECT_DOUBLE_EQ(parts.precision[2], 100 * 0.5 / 3);
  EXPECT_DOUBLE_EQ(parts.precision[3], 100 * 0.25 / 2);
}

TEST(TextMetrics, AMoveIsOneEdit) {
  const Ter ter;
  EXPECT_DOUBLE_EQ(ter.sentence_score("d e f a b c", {"a b c d e f"}), 100 / 6.0);
  EXPECT_DOUBLE_EQ(ErrorRate().sentence_score("d e f a b c", {"a b c d e f"}), 100.0);
  EXPECT_DOUBLE_EQ(ter.sentence_score("A B", {"a b"}), 0);
  EXPECT_DOUBLE_EQ(Ter({.case_sensitive = true}).sentence_score("A B", {"a b"}), 100);
}

TEST(TextMetrics, TheBestPronunciationCounts) {
  const ErrorRate phonemes;
  const References either{"T AH M EY T OW", "T AH M AA T OW Z"};
  EXPECT_EQ(phonemes.statistics("T AH M AA T OW", either), (Statistics{1, 7})) << "of equals the longest";
  EXPECT_EQ(phonemes.statistics("T AH M EY T OW", either), (Statistics{0, 6}));
  const ExactMatch exact;
  const std::vector<std::string> said{"T AH M EY T OW", "T AH M AA T OW", " T AH  M AA T OW Z\n"};
  EXPECT_NEAR(exact.corpus_score(said, std::vector<References>(3, either)), 200 / 3.0, 1e-12);
}

TEST(TextMetrics, NamesAreThoseOfTables) {
  EXPECT_EQ(Bleu().name(), "BLEU");
  EXPECT_EQ(Chrf().name(), "chrF");
  EXPECT_EQ(Chrf({.word_order = 1}).name(), "chrF+");
  EXPECT_EQ(Chrf({.word_order = 2}).name(), "chrF++");
  EXPECT_EQ(Chrf({.word_order = 3}).name(), "chrF+3");
  EXPECT_EQ(ErrorRate({.unit = ErrorUnit::characters}).name(), "CER");
}

TEST(TextMetrics, BytesThatAreNoTextAreCharacters) {
  const std::string broken = "a \xff\xfe b \xe4\xbd";
  for (const auto& [title, metric] : metrics())
    EXPECT_TRUE(std::isfinite(metric->sentence_score(broken, {"a b c", broken}))) << title;
  EXPECT_EQ(Chrf().sentence_score(broken, {broken}), 100);
  EXPECT_EQ(ErrorRate({.unit = ErrorUnit::characters}).statistics("\xff\xff", {"\xff"}), (Statistics{1, 1}));
  EXPECT_EQ(ErrorRate({.unit = ErrorUnit::characters}).statistics(std::string(1, '\0'), {"ab"}),
            (Statistics{2, 2}));
}

TEST(TextMetrics, Errors) {
  const Bleu bleu;
  expect_error<DataError>([&] { bleu.sentence_score("a", {}); }, {"BLEU: the segment has no reference"});
  const std::vector<std::string> two{"a", "b"};
  const std::vector<References> one{{"a"}}, second_missing{{"a"}, {}};
  expect_error<DataError>([&] { bleu.corpus_score(two, one); },
                          {"2 hypotheses, but references of 1 segments"});
  expect_error<DataError>([&] { bleu.corpus_score(two, second_missing); }, {"segment 1 has no reference"});
  expect_error<DataError>([&] { bleu.corpus_score({}, {}); }, {"no segments"});
  expect_error<ConfigError>([] { Chrf({.word_order = -1}); }, {"word_order must be 0 to 6, got -1"});
}

}  // namespace
}  // namespace heed::data
