// Corrupted texts: what is taken away, how often, and that nothing is lost.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/corruption.h>
#include <heed/data/pair_loader.h>

#include "../support/expect_error.h"

namespace heed::data {
namespace {

using test::expect_error;

// ids 100, 101, …
TokenIds text_of(int64_t length) {
  TokenIds text(static_cast<size_t>(length));
  std::iota(text.begin(), text.end(), int64_t{100});
  return text;
}

// Text i has 5 + i % 40 tokens.
class Texts final : public Dataset<TokenIds> {
 public:
  int64_t size() const override { return 400; }
  TokenIds get(int64_t, int64_t index) const override { return text_of(5 + index % 40); }
  std::string fingerprint() const override { return "texts"; }
};

// How far a count of `tries` with probability p may lie from its mean: five deviations.
double tolerance(double tries, double p) { return 5 * std::sqrt(tries * p * (1 - p)); }

// ---- numbers

TEST(SampleDraw, DependsOnItsSampleAlone) {
  SampleDraw a(1, 2, 3), b(1, 2, 3);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(a.next(), b.next());
  const uint64_t first = SampleDraw(1, 2, 3).next();
  EXPECT_NE(first, SampleDraw(1, 2, 4).next());
  EXPECT_NE(first, SampleDraw(1, 3, 3).next());
  EXPECT_NE(first, SampleDraw(2, 2, 3).next());
}

TEST(SampleDraw, PoissonHasItsMeanAndProbabilities) {
  constexpr int kTries = 40'000;
  SampleDraw draw(7, 0, 0);
  std::map<int64_t, int> counts;
  double sum = 0;
  for (int i = 0; i < kTries; ++i) {
    const int64_t x = draw.poisson(3);
    ++counts[x];
    sum += static_cast<double>(x);
  }
  EXPECT_NEAR(sum / kTries, 3, 5 * std::sqrt(3.0 / kTries));
  double p = std::exp(-3.0);
  for (int64_t k = 0; k < 8; ++k, p *= 3.0 / static_cast<double>(k))
    EXPECT_NEAR(counts[k], kTries * p, tolerance(kTries, p)) << k;
}

// ---- masking

const MaskingOptions kMasking{.mask = 4, .vocabulary = 200, .special = {0, 1, 2, 3}};

TEST(Masking, ChoosesAShareAndTreatsItAsTold) {
  constexpr int kTexts = 2'000;
  TokenIds text = text_of(60);
  text.insert(text.begin(), 2);
  text.push_back(3);
  int64_t masked = 0, random = 0, kept = 0;
  std::vector<int> chosen(text.size());
  for (int i = 0; i < kTexts; ++i) {
    SampleDraw draw(5, 0, i);
    const MaskedText m = mask_tokens(text, kMasking, draw);
    ASSERT_EQ(m.ids.size(), text.size());
    int64_t labels = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      if (m.labels[at] == kNoLabel) {
        EXPECT_EQ(m.ids[at], text[at]);
        continue;
      }
      EXPECT_EQ(m.labels[at], text[at]);
      ++labels;
      ++chosen[at];
      if (m.ids[at] == 4) {
        ++masked;
      } else if (m.ids[at] == text[at]) {
        ++kept;
      } else {
        ++random;
        EXPECT_GT(m.ids[at], 4);
        EXPECT_LT(m.ids[at], 200);
      }
    }
    EXPECT_EQ(labels, 9);  // 15 % of 60
  }
  const double all = kTexts * 9.0;
  EXPECT_NEAR(static_cast<double>(masked), 0.8 * all, tolerance(all, 0.8));
  // One of the 195 tokens that may be drawn is the token itself.
  EXPECT_NEAR(static_cast<double>(random), all * 0.1 * 194 / 195, tolerance(all, 0.1));
  EXPECT_NEAR(static_cast<double>(kept), all * (0.1 + 0.1 / 195), tolerance(all, 0.1));
  EXPECT_EQ(chosen.front() + chosen.back(), 0) << "special tokens";
  for (size_t at = 1; at + 1 < text.size(); ++at)
    EXPECT_NEAR(chosen[at], kTexts * 0.15, tolerance(kTexts, 0.15)) << at;
}

TEST(Masking, SmallAndSpecialTexts) {
  SampleDraw draw(1, 0, 0);
  const MaskedText one = mask_tokens({2, 150, 3}, kMasking, draw);
  EXPECT_EQ(one.labels, (TokenIds{kNoLabel, 150, kNoLabel}));
  const MaskedText none = mask_tokens({2, 3}, kMasking, draw);
  EXPECT_EQ(none.ids, (TokenIds{2, 3}));
  EXPECT_EQ(none.labels, (TokenIds{kNoLabel, kNoLabel}));
  EXPECT_TRUE(mask_tokens({}, kMasking, draw).ids.empty());
  const MaskedText all =
      mask_tokens({7, 8}, {.rate = 1, .masked = 1, .random = 0, .mask = 4, .vocabulary = 10}, draw);
  EXPECT_EQ(all.ids, (TokenIds{4, 4}));
  EXPECT_EQ(mask_tokens({7, 8}, {.rate = 0, .mask = 4, .vocabulary = 10}, draw).ids, (TokenIds{7, 8}));
  EXPECT_THROW(mask_tokens({7}, {.rate = 1.5, .mask = 4, .vocabulary = 10}, draw), ConfigError);
  EXPECT_THROW(mask_tokens({7}, {.masked = 0.9, .random = 0.2, .mask = 4, .vocabulary = 10}, draw),
               ConfigError);
  EXPECT_THROW(mask_tokens({7}, {.mask = 10, .vocabulary = 10}, draw), ConfigError);
  EXPECT_THROW(mask_tokens({1}, {.mask = 1, .vocabulary = 2, .special = {0}}, draw), ConfigError);
}

TEST(Masking, BatchesArePackedAndDifferFromEpochToEpoch) {
  const auto texts = std::make_shared<Texts>();
  const auto masked = std::make_shared<MaskedDataset>(texts, kMasking, 9);
  using MaskedLoader = Loader<MaskedText, MaskedBatch>;
  MaskedLoader loader(masked, masked_collate(44), {.batch_size = 16, .max_tokens = 500});
  MaskedLoader other(masked, masked_collate(44), {.batch_size = 16, .max_tokens = 500, .prefetch = false},
                     {0, 0});
  int64_t seen = 0;
  for (auto batch = loader.next(); batch; batch = loader.next()) {
    const auto same = other.next();
    ASSERT_TRUE(same);
    EXPECT_EQ(same->ids, batch->ids);
    EXPECT_EQ(same->labels, batch->labels);
    EXPECT_LE(batch->texts.rows, 500);
    int64_t labels = 0;
    for (int64_t i = 0; i < batch->size(); ++i) {
      const auto n = static_cast<size_t>(i);
      const MaskedText expected = masked->get(0, batch->samples[n]);
      const auto first = batch->ids.begin() + batch->texts.first[n];
      EXPECT_EQ(TokenIds(first, first + batch->texts.length[n]), expected.ids);
      labels +=
          std::ssize(expected.labels) - std::count(expected.labels.begin(), expected.labels.end(), kNoLabel);
    }
    EXPECT_EQ(batch->labeled(), labels);
    seen += batch->size();
  }
  EXPECT_EQ(seen, 400);
  EXPECT_NE(masked->get(0, 39).ids, masked->get(1, 39).ids);
  EXPECT_EQ(masked->get(1, 39).ids, masked->get(1, 39).ids);
}

// ---- spans

SpanOptions spans_of(int64_t count) {
  SpanOptions options;
  for (int64_t i = 0; i < count; ++i) options.sentinels.push_back(10 + i);
  return options;
}

// The text that source and target make together.
TokenIds restored(const Pair& pair) {
  TokenIds text;
  for (const int64_t id : pair.source) {
    if (id >= 100) {
      text.push_back(id);
      continue;
    }
    auto at = std::find(pair.target.begin(), pair.target.end(), id);
    for (++at; at != pair.target.end() && *at >= 100; ++at) text.push_back(*at);
  }
  return text;
}

TEST(Spans, HaveTheirNumbersAndLoseNothing) {
  const SpanOptions options = spans_of(20);
  for (const int64_t length : {2, 3, 7, 20, 60, 101}) {
    const int64_t tokens = std::max<int64_t>(1, std::llround(0.15 * static_cast<double>(length)));
    const int64_t spans = std::max<int64_t>(1, std::llround(static_cast<double>(tokens) / 3));
    for (int i = 0; i < 50; ++i) {
      SampleDraw draw(3, 0, i);
      const Pair pair = corrupt_spans(text_of(length), options, draw);
      EXPECT_EQ(std::ssize(pair.source), length - tokens + spans);
      EXPECT_EQ(std::ssize(pair.target), tokens + spans);
      EXPECT_EQ(pair.source.front(), 100) << "the first token stays";
      EXPECT_EQ(restored(pair), text_of(length));
      TokenIds sentinels;
      for (const int64_t id : pair.target)
        if (id < 100) sentinels.push_back(id);
      EXPECT_EQ(sentinels, TokenIds(options.sentinels.begin(), options.sentinels.begin() + spans));
    }
  }
}

TEST(Spans, AnyDivisionIsAsLikely) {
  // Of 20 tokens 6 in 2 spans: the first has 1 to 5 tokens, and 1 to 13 tokens stand before it.
  constexpr int kTries = 20'000;
  SpanOptions options = spans_of(2);
  options.rate = 0.3;
  std::map<int64_t, int> spans, before;
  for (int i = 0; i < kTries; ++i) {
    SampleDraw draw(3, 1, i);
    const Pair pair = corrupt_spans(text_of(20), options, draw);
    ++spans[std::find(pair.target.begin(), pair.target.end(), 11) - pair.target.begin() - 1];
    ++before[std::find(pair.source.begin(), pair.source.end(), 10) - pair.source.begin()];
  }
  ASSERT_EQ(spans.size(), 5u);
  for (const auto& [length, count] : spans)
    EXPECT_NEAR(count, kTries / 5.0, tolerance(kTries, 1 / 5.0)) << length;
  ASSERT_EQ(before.size(), 13u);
  for (const auto& [length, count] : before)
    EXPECT_NEAR(count, kTries / 13.0, tolerance(kTries, 1 / 13.0)) << length;
}

TEST(Spans, SmallTextsAndWrongNumbers) {
  SampleDraw draw(1, 0, 0);
  EXPECT_EQ(corrupt_spans({150}, spans_of(1), draw), (Pair{{150}, {}}));
  EXPECT_EQ(corrupt_spans({}, spans_of(1), draw), (Pair{{}, {}}));
  EXPECT_EQ(corrupt_spans({150, 151}, spans_of(1), draw), (Pair{{150, 10}, {10, 151}}));
  expect_error<ConfigError>([&] { corrupt_spans(text_of(100), spans_of(4), draw); },
                            {"5 spans", "4 sentinels"});
  EXPECT_THROW(corrupt_spans({1, 2}, {.rate = -1, .sentinels = {9}}, draw), ConfigError);
  EXPECT_THROW(corrupt_spans({1, 2}, {.mean_span = 0.5, .sentinels = {9}}, draw), ConfigError);
  EXPECT_THROW(SpanCorruption(std::make_shared<Texts>(), spans_of(1), 200, 1), ConfigError);
}

// ---- infilling

TEST(Infilling, TargetsAreWholeTextsAndSpansPoisson) {
  constexpr int kTexts = 4'000;
  const InfillingOptions options{.rate = 0.3, .mean_span = 3, .mask = 5};
  int64_t masks = 0, at_front = 0;
  for (int i = 0; i < kTexts; ++i) {
    SampleDraw draw(11, 0, i);
    const Pair pair = infill(text_of(200), options, draw);
    EXPECT_EQ(pair.target, text_of(200));
    const int64_t count = std::count(pair.source.begin(), pair.source.end(), 5);
    EXPECT_EQ(std::ssize(pair.source) - count, 140) << "30 % are taken away";
    TokenIds left = pair.source;
    std::erase(left, 5);
    EXPECT_TRUE(std::ranges::is_sorted(left));
    EXPECT_TRUE(std::ranges::includes(pair.target, left));
    masks += count;
    at_front += pair.source.front() == 5;
  }
  // Wald: as many spans as it takes to reach 60 have 3 times their number of tokens, 60 and what the last one
  // has beyond: (E[x²] - E[x]) / (2 E[x]) = 1.5.
  const double expected = (60 + 1.5) / 3;
  EXPECT_NEAR(static_cast<double>(masks) / kTexts, expected, 0.12);
  EXPECT_NEAR(static_cast<double>(at_front), static_cast<double>(masks) / (140 + expected),
              tolerance(kTexts, expected / 160) + 0.01 * kTexts);
}

TEST(Infilling, MasksAreInsertedToo) {
  // Spans of mean 0.5 are mostly of length 0: a mask stands where nothing is missing.
  SampleDraw draw(2, 0, 0);
  const Pair pair = infill(text_of(40), {.rate = 0.1, .mean_span = 0.5, .mask = 5}, draw);
  const int64_t masks = std::count(pair.source.begin(), pair.source.end(), 5);
  EXPECT_GT(masks, 4);
  EXPECT_EQ(std::ssize(pair.source), 36 + masks);
  // However small the mean is, it ends: at most as many are inserted as there are tokens.
  const Pair many = infill(text_of(10), {.rate = 0.5, .mean_span = 1e-12, .mask = 5}, draw);
  EXPECT_LE(std::ssize(many.source), 20);
  EXPECT_EQ(infill(text_of(1), {.rate = 0.3, .mask = 5}, draw).source, text_of(1));
  EXPECT_EQ(infill(text_of(3), {.rate = 1, .mean_span = 100, .mask = 5}, draw).source, (TokenIds{5}));
  EXPECT_TRUE(infill({}, {.mask = 5}, draw).source.empty());
  EXPECT_THROW(infill({1}, {.rate = 2}, draw), ConfigError);
  EXPECT_THROW(infill({1}, {.mean_span = 0}, draw), ConfigError);
}

TEST(Infilling, LoadersOfPairsTakeBoth) {
  const auto texts = std::make_shared<Texts>();
  const auto spans = std::make_shared<SpanCorruption>(texts, spans_of(3), 200, 4);
  const auto gaps = std::make_shared<TextInfilling>(texts, InfillingOptions{.mask = 5}, 200, 4);
  EXPECT_EQ(spans->longest_source(), 44 - 7 + 2);
  EXPECT_EQ(spans->longest_target(), 7 + 2);
  for (const std::shared_ptr<const PairDataset>& dataset :
       {std::shared_ptr<const PairDataset>(spans), std::shared_ptr<const PairDataset>(gaps)}) {
    EXPECT_NE(dataset->get(0, 39), dataset->get(1, 39));
    EXPECT_EQ(dataset->get(2, 39), dataset->get(2, 39));
    for (int64_t i = 0; i < dataset->size(); ++i) {
      EXPECT_LE(std::ssize(dataset->get(3, i).source), dataset->longest_source());
      EXPECT_LE(std::ssize(dataset->get(3, i).target), dataset->longest_target());
    }
    PairLoader whole(dataset, {.batch_size = 8}), late(dataset, {.batch_size = 8});
    for (int i = 0; i < 60; ++i) whole.next();  // into the second epoch
    late.seek(whole.state());
    const auto a = whole.next(), b = late.next();
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->source_ids, b->source_ids);
    EXPECT_EQ(a->labels, b->labels);
  }
}

}  // namespace
}  // namespace heed::data
