#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/tsv.h>

#include "../support/expect_error.h"
#include "../support/temporary_folder.h"

namespace heed::data {
namespace {

using Ids = TokenIds;
using test::expect_error;

TEST(Tsv, ReadsPairsInOrder) {
  const TsvDataset set = parse_tsv("3 4 5\t6\n19\t3 3 3 3\n7 8\t\n", "f");
  ASSERT_EQ(set.size(), 3);
  EXPECT_EQ(set.get(0, 0), (Pair{{3, 4, 5}, {6}}));
  EXPECT_EQ(set.get(9, 1), (Pair{{19}, {3, 3, 3, 3}}));
  EXPECT_EQ(set.get(0, 2), (Pair{{7, 8}, {}}));
  EXPECT_EQ(set.vocab(), 20);
  EXPECT_EQ(set.longest_source(), 3);
  EXPECT_EQ(set.longest_target(), 4);
  EXPECT_EQ(parse_tsv("3\t4", "f", {.vocab = 50}).vocab(), 50);
  expect_error<IndexError>([&] { set.get(0, 3); }, {"pair 3 is not in 0 to 2"});
}

TEST(Tsv, AcceptsWhatEditorsAdd) {
  const Pair pair{{3, 4}, {5, 6}};
  for (const char* text : {"3 4\t5 6", "3 4\t5 6\n", "3 4\t5 6\r\n",
                           "\xef\xbb\xbf"
                           "3 4\t5 6\n",
                           "  3   4 \t 5  6  \n", "3 4\t5 6\n\n\r\n\n", "0003 4\t5 6"}) {
    const TsvDataset set = parse_tsv(text, "f");
    ASSERT_EQ(set.size(), 1) << text;
    EXPECT_EQ(set.get(0, 0), pair) << text;
  }
}

void refuses(const std::string& text, std::initializer_list<std::string> pieces, TsvOptions options = {}) {
  SCOPED_TRACE(text.substr(0, 100));
  expect_error<DataError>([&] { parse_tsv(text, "d.tsv", options); }, pieces);
}

TEST(Tsv, SaysWhatIsWrongAndWhere) {
  refuses("3\t4\n3 4\n", {"d.tsv:2:4: no tab"});
  refuses("3\t4\t5\n", {"d.tsv:1:4: a second tab"});
  refuses("3\t4\n\n3\t4\n", {"d.tsv:2:1: no tab"});
  refuses("\t4\n", {"d.tsv:1:1: the source is empty"});
  refuses("  \t4\n", {"d.tsv:1:1: the source is empty"});
  refuses("3 a\t4\n", {"d.tsv:1:3: ", "integers", "found 'a'"});
  refuses("3 12x\t4\n", {"d.tsv:1:5: ", "found 'x'"});
  refuses("3 -4\t4\n", {"d.tsv:1:3: ", "found '-'"});
  refuses("3 4.0\t4\n", {"d.tsv:1:4: ", "found '.'"});
  refuses("3,4\t4\n", {"d.tsv:1:2: ", "found ','"});
  refuses(std::string("3\t4\n3 \0\t4\n", 10), {"d.tsv:2:3: ", "found byte 0x00"});
  refuses("3\t\xff\n", {"d.tsv:1:3: ", "found byte 0xff"});
  refuses(
      "3\t4\xc2\xa0"
      "5\n",
      {"d.tsv:1:4: ", "found byte 0xc2"});
  refuses("3 4\r5\t4\n", {"d.tsv:1:4: ", "found byte 0x0d"});
  refuses(
      "3\t4\n\xef\xbb\xbf"
      "3\t4\n",
      {"d.tsv:2:1: ", "found byte 0xef"});
  refuses(
      "\xff\xfe"
      "3",
      {"d.tsv:1:1: ", "UTF-16"});
}

TEST(Tsv, SymbolsAreInTheVocabulary) {
  for (const char* reserved : {"0", "1", "2"})
    refuses(std::string("3 ") + reserved + "\t4\n", {"d.tsv:1:3: symbol", reserved, "is reserved"});
  refuses("3\t4 20\n", {"d.tsv:1:5: symbol 20 is outside the vocabulary: 3 to 19"}, {.vocab = 20});
  EXPECT_EQ(parse_tsv("3\t4 19\n", "f", {.vocab = 20}).size(), 1);
  refuses("2147483647\t4\n", {"symbol 2147483647 is outside", "3 to 2147483646"});
  refuses("18446744073709551619\t4\n", {"symbol 18446744073709551619 is outside"});  // wraps to 3 in 64 bits
  refuses(std::string(100'000, '9') + "\t4\n", {"symbol 99999999999999999999 is outside"});
  EXPECT_EQ(parse_tsv("2147483646\t4\n", "f").get(0, 0).source, Ids{2147483646});
  expect_error<ConfigError>([] { parse_tsv("3\t4", "f", {.vocab = 3}); }, {"vocab is 3"});
  expect_error<ConfigError>([] { parse_tsv("3\t4", "f", {.vocab = int64_t{1} << 31}); },
                            {"vocab is 2147483648"});
}

TEST(Tsv, LinesAreLimited) {
  const std::string line = "3 4\t5 6";
  refuses("3\t3\n" + line + "\n", {"d.tsv:2:7: the line has 7 bytes, more than the limit of 6"},
          {.max_line_bytes = 6});
  EXPECT_EQ(parse_tsv(line, "f", {.max_line_bytes = 7}).size(), 1);
  std::string longest = "3\t";
  while (longest.size() < (1 << 20) + 1) longest += "3 ";
  refuses(longest, {"1048576"});
}

TEST(Tsv, EmptyFilesAreRefused) {
  refuses("", {"d.tsv is empty"});
  refuses("\n\n", {"d.tsv is empty"});
  refuses("\xef\xbb\xbf", {"d.tsv is empty"});
}

TEST(Tsv, FilesThatCannotBeRead) {
  const test::TemporaryFolder folder;
  expect_error<DataError>([&] { read_tsv(folder.file("none")); }, {folder.file("none"), "No such file"});
  expect_error<DataError>([&] { read_tsv(folder.path()); }, {folder.path(), "it is a directory"});
  expect_error<DataError>([&] { read_tsv(folder.put("empty", "")); }, {folder.file("empty"), "is empty"});
  expect_error<DataError>([&] { read_tsv(folder.put("big", "3\t4\n"), {.max_file_bytes = 3}); },
                          {"limit of 3"});
  expect_error<DataError>([&] { read_tsv(folder.put("bad", "3\t4\nx\n")); }, {folder.file("bad") + ":2:1: "});
  if (::geteuid() != 0) {
    ASSERT_EQ(::chmod(folder.file("big").c_str(), 0), 0);
    expect_error<DataError>([&] { read_tsv(folder.file("big")); }, {"Permission denied"});
  }
}

TEST(Tsv, TheFingerprintIsThatOfTheContent) {
  const test::TemporaryFolder folder;
  const std::string first = read_tsv(folder.put("a", "3\t4\n")).fingerprint();
  EXPECT_EQ(first, read_tsv(folder.put("b", "3\t4\n")).fingerprint());
  EXPECT_NE(first, read_tsv(folder.put("a", "3\t5\n")).fingerprint());
}

TEST(Tsv, OnlyRegularFilesAreRead) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder.file("pipe"), std::string("/dev/zero")})
    expect_error<DataError>([&] { read_tsv(path); }, {path, "not a regular file"});
}

}  // namespace
}  // namespace heed::data
