#include <set>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/io/atomic_file.h>
#include <heed/data/text/text_dataset.h>
#include <heed/data/text/text_pairs.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"

namespace heed::data {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;

TEST(TextPairs, ReadsLinesOfSourceTabTarget) {
  for (const char* text : {"ab c\td\n\u00e9\t\n",
                           "\xef\xbb\xbf"
                           "ab c\td\r\n\u00e9\t\r\n\r\n\n"}) {
    const TextPairs pairs = parse_text_pairs(text, "f");
    EXPECT_EQ(pairs.sources, (Texts{"ab c", "\u00e9"}));
    EXPECT_EQ(pairs.targets, (Texts{"d", ""}));
  }
}

TEST(TextPairs, ErrorsSayWhere) {
  const auto refuse = [](std::string_view text, const std::string& message) {
    expect_error<DataError>([&] { parse_text_pairs(text, "f"); }, {message});
  };
  refuse("", "f is empty");
  refuse("\xef\xbb\xbf\r\n\n", "f is empty");
  refuse("a\tb\nab", "f:2:3: expected a tab");
  refuse("a\tb\n\nc\td", "f:2:1: expected a tab");
  refuse("a\tb\tc", "f:1:4: a second tab");
  refuse("a\tb\na\xff\tb", "f:2:2: this byte is not UTF-8");
  refuse(std::string_view("a\0\tb", 4), "f:1:2: a NUL");
  refuse(
      "\xff\xfe"
      "a",
      "UTF-16");
  expect_error<DataError>([] { parse_text_pairs("a\tbbbb", "f", {.max_line_bytes = 5}); },
                          {"f:1: a line of 6 bytes"});
  expect_error<DataError>([] { parse_text_pairs(std::string(1'100'000, 'a'), "f"); }, {"1100000 bytes"});
}

TEST(TextPairs, FieldsMayBeQuoted) {
  const TextFileOptions quoted{.quoted = true};
  const TextPairs pairs = parse_text_pairs("\"a \"\"b\"\"\tc\"\t\"\"\nx\"y\tz\n", "f", quoted);
  EXPECT_EQ(pairs.sources, (Texts{"a \"b\"\tc", "x\"y"}));
  EXPECT_EQ(pairs.targets, (Texts{"", "z"}));
  EXPECT_EQ(parse_text_pairs("\"a\"\tb", "f").sources, Texts{"\"a\""});
  expect_error<DataError>([&] { parse_text_pairs("\"a\tb", "f", quoted); },
                          {"f:1:5", "closing quote is missing"});
  expect_error<DataError>([&] { parse_text_pairs("\"a\"b\tc", "f", quoted); },
                          {"f:1:4", "expected a tab after"});
}

TEST(TextPairs, ParallelFilesHaveEquallyManyLines) {
  const test::TemporaryFolder folder;
  const std::string a = folder.file("a"), b = folder.file("b");
  write_whole_file(a, "1\n2\n");
  write_whole_file(b, "x\ty\nz\n");
  const TextPairs pairs = read_parallel_texts(a, b);
  EXPECT_EQ(pairs.sources, (Texts{"1", "2"}));
  EXPECT_EQ(pairs.targets, (Texts{"x\ty", "z"}));
  write_whole_file(b, "x\n");
  expect_error<DataError>([&] { read_parallel_texts(a, b); }, {"2 lines", "has 1"});
  expect_error<DataError>([&] { read_text_pairs(a + "x"); }, {"ax"});
  expect_error<DataError>([&] { read_text_pairs(folder.path()); }, {"directory"});
}

TEST(TextPairs, FilterCountsWhatItLeavesOut) {
  TextPairs pairs;
  for (const auto& [source, target] :
       std::vector<std::pair<std::string, std::string>>{{"a", "b"},
                                                        {"", "b"},
                                                        {"a", " \u3000"},
                                                        {"same", "same"},
                                                        {"a", "b"},
                                                        {"long\u00e9", "longe"},
                                                        {"a", "bbbb"},
                                                        {"a", "c"}})
    pairs.add(source, target);
  const FilterCounts counts =
      filter(pairs, {.duplicates = true, .equal = true, .max_length = 4, .max_ratio = 3});
  EXPECT_EQ(counts.empty, 2);
  EXPECT_EQ(counts.equal, 1);
  EXPECT_EQ(counts.length, 1);
  EXPECT_EQ(counts.ratio, 1);
  EXPECT_EQ(counts.duplicates, 1);
  EXPECT_EQ(counts.kept, 2);
  EXPECT_EQ(pairs.sources, (Texts{"a", "a"}));
  EXPECT_EQ(pairs.targets, (Texts{"b", "c"}));
}

TEST(TextPairs, SplitsFollowTheSourceAlone) {
  TextPairs pairs;
  for (int i = 0; i < 4000; ++i) {
    pairs.add(concat("word", i), "x");
    pairs.add(concat("word", i), "y");
  }
  const TextSplits splits = split_by_source(pairs, 0.1, 0.2);
  EXPECT_EQ(splits.train.size() + splits.valid.size() + splits.test.size(), 8000);
  EXPECT_NEAR(static_cast<double>(splits.valid.size()), 800, 120);  // 4 standard deviations
  EXPECT_NEAR(static_cast<double>(splits.test.size()), 1600, 200);
  const std::set<std::string> test(splits.test.sources.begin(), splits.test.sources.end());
  EXPECT_EQ(static_cast<int64_t>(test.size()) * 2, splits.test.size());
  for (const std::string& source : splits.train.sources) EXPECT_FALSE(test.count(source));

  pairs.add("another", "z");  // moves none of the others
  const TextSplits more = split_by_source(pairs, 0.1, 0.2);
  EXPECT_GE(more.test.size(), splits.test.size());
  for (int64_t i = 0; i < splits.test.size(); ++i)
    EXPECT_EQ(more.test.sources[static_cast<size_t>(i)], splits.test.sources[static_cast<size_t>(i)]);

  expect_error<ConfigError>([&] { split_by_source(pairs, 0.5, 0.5); }, {"less than 1"});
  expect_error<ConfigError>([&] { split_by_source(pairs, -0.1, 0.5); }, {"-0.1"});
}

TEST(TextDataset, HoldsTheIdsOfBothSides) {
  TextPairs pairs;
  pairs.add("ab", "X Y");
  pairs.add("b", "Y");
  pairs.add("bbb", "X");
  const auto source = train_tokenizer({.kind = TokenizerKind::bytes}, {});
  const auto target = train_tokenizer({.kind = TokenizerKind::symbols}, {pairs.targets});
  const TextDataset set(pairs, *source, *target, 2);
  ASSERT_EQ(set.size(), 2);
  EXPECT_EQ(set.too_long(), 1);
  EXPECT_EQ(set.get(0, 0), (Pair{{3 + 'a', 3 + 'b'}, {4, 5}}));
  EXPECT_EQ(set.get(7, 1), (Pair{{3 + 'b'}, {5}}));
  EXPECT_EQ(set.vocab(), 259);
  EXPECT_EQ(set.longest_source(), 2);
  EXPECT_EQ(set.longest_target(), 2);
  expect_error<IndexError>([&] { set.get(0, 2); }, {"pair 2 is not in 0 to 1"});
  EXPECT_EQ(set.fingerprint(), TextDataset(pairs, *source, *target, 2).fingerprint());
  EXPECT_NE(set.fingerprint(), TextDataset(pairs, *source, *target).fingerprint());
}

}  // namespace
}  // namespace heed::data
