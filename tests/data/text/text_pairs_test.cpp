#include <fstream>
#include <set>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/io/atomic_file.h>
#include <heed/data/text/text_dataset.h>
#include <heed/data/text/text_pairs.h>

#include "../../support/address_sanitizer.h"
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

TextPairs streamed(const std::string& file, const TextFileOptions& options = {}) {
  TextPairs pairs;
  for_each_text_pair(file, options, [&](std::string source, std::string target) {
    pairs.add(std::move(source), std::move(target));
  });
  return pairs;
}

// Some megabytes, so that lines lie across the parts in which files are read.
TEST(TextPairs, FilesAreReadLineByLineOrWhole) {
  const test::TemporaryFolder folder;
  TextPairs known;
  std::string text = "\xef\xbb\xbf", sources, targets;
  for (size_t i = 0; text.size() < 5'000'000; ++i) {
    std::string source = i % 7 == 0 ? "" : concat("s\u00e9", i, std::string(i * 7919 % 3000, 'a'));
    std::string target = i % 5 == 0 ? "" : concat("t", std::string(i * 104729 % 4000, 'b'));
    text += concat(source, '\t', target, i % 2 ? "\n" : "\r\n");
    known.add(std::move(source), std::move(target));
  }
  known.add("last", "one");
  text += "last\tone";
  for (const char* end : {"", "\n", "\r\n\n\r\n"}) {
    const std::string file = folder.put("f", text + end);
    for (const TextPairs& pairs :
         {streamed(file), read_text_pairs(file), parse_text_pairs(text + end, "f")}) {
      EXPECT_EQ(pairs.sources, known.sources);
      EXPECT_EQ(pairs.targets, known.targets);
    }
  }
  for (const std::string& source : known.sources) sources += source + "\n";
  for (const std::string& target : known.targets) targets += target + "\n";
  const std::string from = folder.put("s", sources), to = folder.put("t", targets);
  TextPairs parallel;
  for_each_parallel_text(from, to, {}, [&](std::string source, std::string target) {
    parallel.add(std::move(source), std::move(target));
  });
  EXPECT_EQ(parallel.sources, known.sources);
  EXPECT_EQ(parallel.targets, known.targets);
}

TEST(TextPairs, AStreamsErrorsComeWhereTheyAre) {
  const test::TemporaryFolder folder;
  const auto ignore = [](const std::string&, const std::string&) {};
  const std::string file = folder.put("f", "a\tb\n\n\nc\td\n"), none = folder.file("none");
  int64_t pairs = 0;
  const auto count = [&](const std::string&, const std::string&) { ++pairs; };
  expect_error<DataError>([&] { for_each_text_pair(file, {}, count); }, {"f:2:1: expected a tab"});
  EXPECT_EQ(pairs, 1);
  expect_error<DataError>([&] { for_each_text_pair(none, {}, ignore); }, {"none"});
  expect_error<DataError>([&] { for_each_text_pair(folder.put("e", "\r\n\n"), {}, ignore); }, {"is empty"});
  expect_error<DataError>([&] { for_each_text_pair(file, {.max_file_bytes = 5}, ignore); },
                          {"10 bytes", "limit of 5"});
  expect_error<DataError>([&] { for_each_text_pair(folder.put("l", std::string(3 << 20, 'a')), {}, ignore); },
                          {"l:1: a line of 3145728 bytes"});
  const std::string short_one = folder.put("s", "a\nb\n");
  expect_error<DataError>([&] { for_each_parallel_text(file, short_one, {}, ignore); },
                          {"f has 4 lines", "s has 2"});
  expect_error<DataError>([&] { for_each_parallel_text(short_one, file, {}, ignore); },
                          {"s has 2 lines", "f has 4"});
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

/// Pairs of bytes, many enough for several blocks and threads.
TextPairs many_pairs() {
  TextPairs pairs;
  for (size_t i = 0; i < 9'000; ++i)
    pairs.add(concat("source ", i), concat(i, std::string(i * 7919 % 300, 'x')));
  return pairs;
}

TextDataset built(const TextPairs& pairs, const Tokenizer& bytes, const std::string& folder) {
  TextDatasetBuilder builder(bytes, bytes, 250, folder);
  for (size_t i = 0; i < pairs.sources.size(); ++i) builder.add(pairs.sources[i], pairs.targets[i]);
  return builder.finish();
}

TEST(TextDataset, AFileGivesWhatMemoryGivesWithAnyNumberOfThreads) {
  const test::TemporaryFolder folder;
  const auto bytes = train_tokenizer({.kind = TokenizerKind::bytes}, {});
  const TextPairs pairs = many_pairs();
  const TextDataset whole(pairs, *bytes, *bytes, 250);
  EXPECT_GT(whole.too_long(), 1'000);
  for (const int threads : {1, 2, 4}) {
    set_thread_count(threads);
    for (const std::string& place : {std::string(), folder.path()}) {
      const TextDataset set = built(pairs, *bytes, place);
      EXPECT_EQ(set.fingerprint(), whole.fingerprint());
      EXPECT_EQ(set.too_long(), whole.too_long());
      EXPECT_EQ(set.longest_source(), 11);
      EXPECT_EQ(set.longest_target(), 250);
      ASSERT_EQ(set.size(), whole.size());
      for (int64_t i = 0; i < set.size(); ++i) ASSERT_EQ(set.get(0, i), whole.get(0, i)) << i;
    }
  }
  EXPECT_EQ(folder.entries(), 0u);  // the files have no names
  expect_error<IoError>([&] { TextDatasetBuilder(*bytes, *bytes, 0, folder.file("none")); }, {"none"});
}

TEST(TextDataset, AFileTakesTheRoomOfMemory) {
#ifdef HEED_ADDRESS_SANITIZER
  GTEST_SKIP() << "the address sanitizer holds freed memory back";
#endif
  const test::TemporaryFolder folder;
  const auto bytes = train_tokenizer({.kind = TokenizerKind::bytes}, {});
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    int64_t all = 0, pages = 0;
    file >> all >> pages;
    return pages * ::getpagesize();
  };
  const int64_t before = resident();
  TextDatasetBuilder builder(*bytes, *bytes, 0, folder.path());
  const std::string text(200, 'a');
  constexpr int64_t kPairs = 60'000;  // of 400 ids, or 96 MB
  for (int64_t i = 0; i < kPairs; ++i) builder.add(text, text);
  const TextDataset set = builder.finish();
  EXPECT_EQ(set.size(), kPairs);
  EXPECT_EQ(set.get(0, kPairs - 1).source, TokenIds(200, 3 + 'a'));
  // A block of texts and ids is 4,096 pairs of 400 bytes and 400 ids of 8 bytes.
  EXPECT_LT(resident() - before, 40'000'000);
}

}  // namespace
}  // namespace heed::data
