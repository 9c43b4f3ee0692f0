// Search in texts: paragraphs, files, and an index that follows what changes. The encoder of these tests
// knows words alone: two texts are near if they share some.
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/serialize.h>

#include "../support/expect_error.h"
#include "../support/temporary_folder.h"
#include "apps/embed/index.h"
#include "apps/embed/paragraphs.h"

namespace heed::apps {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;

// ---- paragraphs

TEST(Paragraphs, AreWhatBlankLinesSeparate) {
  const auto found = split_paragraphs("One line.\n  and\tmore.\n\n\r\n   \nAnother one,\r\nsaid she.\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].text, "One line. and more.");
  EXPECT_EQ(found[0].first_line, 1);
  EXPECT_EQ(found[0].last_line, 2);
  EXPECT_EQ(found[1].text, "Another one, said she.");
  EXPECT_EQ(found[1].first_line, 6);
  EXPECT_EQ(found[1].last_line, 7);
  EXPECT_TRUE(split_paragraphs("").empty());
  EXPECT_TRUE(split_paragraphs("\n \n\t\n").empty());
}

TEST(Paragraphs, HeadingsGoWithWhatFollows) {
  const auto found = split_paragraphs("# Bread\n\nFlour, water and salt.\n\nBake it.\n\nThe end");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].text, "# Bread Flour, water and salt.");
  EXPECT_EQ(found[0].last_line, 3);
  EXPECT_EQ(found[2].text, "The end");
}

TEST(Paragraphs, LongOnesAreCutAndLoseNothing) {
  std::string text;
  for (int line = 0; line < 100; ++line) text += "word" + std::to_string(line) + " äöü\n";
  std::string huge;
  for (int i = 0; i < 2'000; ++i) huge += "ab ";
  for (const std::string& source : {text, huge, std::string(5'000, 'x'), [] {
                                      std::string s;
                                      for (int i = 0; i < 3'000; ++i) s += "ä";
                                      return s;
                                    }()}) {
    std::string letters, joined;
    for (const char c : source)
      if (c != ' ' && c != '\n') letters += c;
    for (const Paragraph& p : split_paragraphs(source)) {
      EXPECT_LE(p.text.size(), 1200u);
      EXPECT_NE(static_cast<unsigned char>(p.text[0]) & 0xc0, 0x80) << "in the middle of a character";
      for (const char c : p.text)
        if (c != ' ') joined += c;
    }
    EXPECT_EQ(joined, letters);
  }
}

// ---- files

TEST(TextFiles, HiddenOnesLinksAndOthersArePassedOver) {
  const test::TemporaryFolder folder;
  const std::filesystem::path root(folder.path());
  for (const char* name : {"a.txt", "b.md", "c.bin", ".hidden.txt"}) folder.put(name, "text");
  std::filesystem::create_directories(root / "sub");
  std::filesystem::create_directories(root / ".git");
  folder.put("sub/d.txt", "text");
  folder.put(".git/e.txt", "text");
  std::filesystem::create_symlink("a.txt", root / "link.txt");
  std::filesystem::create_directory_symlink("..", root / "sub/up");
  const auto names = [&](const Texts& extensions) {
    Texts found;
    for (const FileStamp& file : list_text_files(folder.path(), extensions)) found.push_back(file.path);
    return found;
  };
  EXPECT_EQ(names({"txt", "md"}), (Texts{"a.txt", "b.md", "sub/d.txt"}));
  EXPECT_EQ(names({}), (Texts{"a.txt", "b.md", "c.bin", "sub/d.txt"}));
  EXPECT_THROW(list_text_files(root / "none", {}), IoError);
  folder.put("nul.txt", std::string("a\0b", 3));
  folder.put("latin.txt", "caf\xE9");
  EXPECT_FALSE(read_text(root / "nul.txt"));
  EXPECT_FALSE(read_text(root / "latin.txt"));
  EXPECT_FALSE(read_text(root / "gone.txt"));
  EXPECT_FALSE(read_text(root / "sub"));
  EXPECT_EQ(read_text(root / "a.txt"), "text");
}

// ---- the index

constexpr int64_t kWidth = 4099;

Tensor by_words(const Texts& texts) {
  Tensor vectors = zeros({std::ssize(texts), kWidth});
  for (size_t i = 0; i < texts.size(); ++i) {
    float* const row = vectors.data<float>() + static_cast<int64_t>(i) * kWidth;
    std::istringstream words(texts[i]);
    for (std::string word; words >> word;) {
      if (word.back() == '.') word.pop_back();
      row[std::hash<std::string>()(word) % kWidth] += 1;
    }
    float squares = 0;
    for (int64_t c = 0; c < kWidth; ++c) squares += row[c] * row[c];
    for (int64_t c = 0; c < kWidth; ++c) row[c] /= std::sqrt(std::max(squares, 1e-9f));
  }
  return vectors;
}

class Index : public ::testing::Test {
 protected:
  UpdateReport refresh() {
    encoded_ = 0;
    return update(index_, folder_.path(), {"txt"}, [this](const Texts& texts) {
      encoded_ += std::ssize(texts);
      return by_words(texts);
    });
  }
  std::string first(const std::string& question) const {
    const auto hits = nearest(index_, by_words({question}), 1);
    if (hits.empty()) return "";
    const Place& place = index_.places[static_cast<size_t>(hits[0].place)];
    return index_.files[static_cast<size_t>(place.file)].path + ":" + std::to_string(place.first_line);
  }
  // Changes a file so that its time differs whatever the clock's steps are.
  void change(const std::string& name, const std::string& text) {
    folder_.put(name, text);
    const auto file = root_ / name;
    std::filesystem::last_write_time(
        file, std::filesystem::last_write_time(file) + std::chrono::seconds(++changes_));
  }

  const test::TemporaryFolder folder_;
  const std::filesystem::path root_ = folder_.path();
  SearchIndex index_;
  int64_t encoded_ = 0;
  int changes_ = 0;
};

TEST_F(Index, FollowsWhatChanges) {
  folder_.put("bread.txt", "flour water salt.\n\nbake for an hour.\n");
  folder_.put("ship.txt", "a ship sails by the stars.\n");
  UpdateReport report = refresh();
  EXPECT_EQ(report.added, 2);
  EXPECT_EQ(report.paragraphs, 3);
  EXPECT_EQ(first("hour bake"), "bread.txt:3");
  EXPECT_EQ(first("stars"), "ship.txt:1");

  report = refresh();
  EXPECT_EQ(report.added + report.changed + report.removed + report.paragraphs, 0);
  EXPECT_EQ(encoded_, 1) << "nothing but the probe";

  change("bread.txt", "new words here.\n");
  folder_.put("zebra.txt", "stripes and grass.\n");
  std::filesystem::remove(root_ / "ship.txt");
  report = refresh();
  EXPECT_EQ(report.added, 1);
  EXPECT_EQ(report.changed, 1);
  EXPECT_EQ(report.removed, 1);
  EXPECT_EQ(report.paragraphs, 2);
  EXPECT_EQ(index_.size(), 2);
  EXPECT_EQ(first("stripes"), "zebra.txt:1");
  EXPECT_EQ(first("words"), "bread.txt:1");

  for (const char* name : {"bread.txt", "zebra.txt"}) std::filesystem::remove(root_ / name);
  refresh();
  EXPECT_EQ(index_.size(), 0);
  EXPECT_EQ(first("words"), "");
}

TEST_F(Index, WhatStaysIsNotEncodedAgain) {
  for (int i = 0; i < 20; ++i)
    folder_.put("f" + std::to_string(i) + ".txt", "word" + std::to_string(i) + " text.\n");
  refresh();
  change("f7.txt", "other things.\n");
  refresh();
  EXPECT_EQ(encoded_, 2) << "the probe and one paragraph";
  for (int i = 0; i < 20; ++i)
    if (i != 7) {
      EXPECT_EQ(first("word" + std::to_string(i) + " text."), "f" + std::to_string(i) + ".txt:1");
    }
}

TEST_F(Index, AnotherModelMakesItAnew) {
  folder_.put("a.txt", "some text.\n");
  refresh();
  const auto other = [](const Texts& texts) { return flip(by_words(texts), 1); };
  EXPECT_EQ(update(index_, folder_.path(), {"txt"}, other).paragraphs, 1);
  EXPECT_EQ(index_.size(), 1);
}

TEST_F(Index, AnErrorLeavesItAsItWas) {
  folder_.put("a.txt", "some text.\n");
  refresh();
  folder_.put("b.txt", "more text.\n");
  const auto failing = [](const Texts& texts) -> Tensor {
    if (texts[0].starts_with("more")) throw DataError("no");
    return by_words(texts);
  };
  EXPECT_THROW(update(index_, folder_.path(), {"txt"}, failing), DataError);
  EXPECT_EQ(index_.files.size(), 1u);
  EXPECT_EQ(index_.vectors.size(0), 1);
  EXPECT_EQ(refresh().added, 1);
}

TEST_F(Index, BestLineIsTheNearestOfAParagraph) {
  folder_.put("a.txt", "skip this.\n\nflour and water\n\t \nsalt of the sea\nbake for an hour\n");
  const Place place{0, 3, 6};
  const BestLine best = best_line(root_ / "a.txt", place, by_words({"sea salt"}), by_words);
  EXPECT_EQ(best.line, 5);
  EXPECT_EQ(best.text, "salt of the sea");
  EXPECT_EQ(best_line(root_ / "gone.txt", place, by_words({"x"}), by_words).line, 0);
  EXPECT_EQ(best_line(root_ / "a.txt", {0, 100, 101}, by_words({"x"}), by_words).line, 0);
}

TEST_F(Index, ComesBackFromItsFile) {
  folder_.put("a.txt", "some text.\n\nand more.\n");
  folder_.put("b.txt", "");
  refresh();
  const std::string file = folder_.file("index");
  save_index(index_, file);
  const SearchIndex back = load_index(file);
  EXPECT_EQ(back.files, index_.files);
  ASSERT_EQ(back.size(), index_.size());
  for (size_t i = 0; i < back.places.size(); ++i) {
    EXPECT_EQ(back.places[i].file, index_.places[i].file);
    EXPECT_EQ(back.places[i].first_line, index_.places[i].first_line);
    EXPECT_EQ(back.places[i].last_line, index_.places[i].last_line);
  }
  EXPECT_EQ(max(abs(back.vectors - index_.vectors)).item<float>(), 0);
  EXPECT_EQ(load_index(folder_.file("none")).size(), 0);
}

TEST_F(Index, DamagedFilesAreRefused) {
  folder_.put("a.txt", "some text.\n");
  refresh();
  const std::string file = folder_.file("index");
  save_index(index_, file);
  NamedTensors good = load_tensors(file);
  const auto refuse = [&](const char* name, const Tensor& value) {
    NamedTensors bad = good;
    for (auto& [found, tensor] : bad)
      if (found == name) tensor = value;
    save_tensors(file, bad);
    EXPECT_THROW(load_index(file), CheckpointError) << name << value.shape();
  };
  refuse("places", tensor(std::vector<int64_t>{1, 1, 1}, {1, 3}));  // a file that is not there
  refuse("places", tensor(std::vector<int64_t>{0, 0, 1}, {1, 3}));  // a line 0
  refuse("places", tensor(std::vector<int64_t>{0, 2, 1}, {1, 3}));  // backwards
  refuse("places", zeros({0, 3}, {.dtype = DType::i64}));           // a vector too many
  refuse("places", zeros({1, 2}, {.dtype = DType::i64}));
  refuse("stamps", zeros({2, 2}, {.dtype = DType::i64}));
  refuse("stamps", zeros({0, 2}, {.dtype = DType::i64}));
  refuse("paths", tensor(std::vector<int32_t>{97, 98}, {2}));  // without its end
  refuse("paths", tensor(std::vector<int32_t>{300, 0}, {2}));
  refuse("paths", tensor(std::vector<int32_t>{47, 97, 0}, {3}));          // "/a"
  refuse("paths", tensor(std::vector<int32_t>{46, 46, 47, 97, 0}, {5}));  // "../a"
  refuse("probe", zeros({1, 3}));
  refuse("vectors", zeros({1, kWidth}, {.dtype = DType::f64}));
  folder_.put("index", "no index at all, whatever it is");
  EXPECT_THROW(load_index(file), CheckpointError);
}

}  // namespace
}  // namespace heed::apps
