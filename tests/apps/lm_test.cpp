// The documents of a language model's training.
#include <filesystem>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "../support/expect_error.h"
#include "../support/temporary_folder.h"
#include "apps/lm/documents.h"

namespace heed::apps {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;

TEST(Documents, AreFilesParagraphsOrLines) {
  const std::string text = "\n a\r\nb\n \n\n\nc\n";
  EXPECT_EQ(divide(text, DocumentUnit::file), Texts{text});
  EXPECT_EQ(divide(text, DocumentUnit::paragraph), (Texts{" a\nb", "c"}));
  EXPECT_EQ(divide(text, DocumentUnit::line), (Texts{" a", "b", "c"}));
  for (const DocumentUnit unit : {DocumentUnit::file, DocumentUnit::paragraph, DocumentUnit::line})
    EXPECT_EQ(divide("", unit), Texts{});
  EXPECT_EQ(divide("\n \n", DocumentUnit::paragraph), Texts{});
}

TEST(Documents, AreSplitByTheirHash) {
  Texts documents;
  for (int i = 0; i < 1000; ++i) documents.push_back("document " + std::to_string(i % 500));
  const Documents split = split_documents(documents, 0.2, Split::automatic);
  EXPECT_EQ(split.train.size() + split.valid.size(), 1000u);
  EXPECT_NEAR(static_cast<double>(split.valid.size()), 200, 60);
  for (const std::string& document : split.valid)
    EXPECT_EQ(std::count(split.train.begin(), split.train.end(), document), 0) << "equal ones stay together";
  // Others that come change nothing.
  documents.insert(documents.begin(), "another");
  Documents more = split_documents(documents, 0.2, Split::hash);
  std::erase(more.valid, "another");
  EXPECT_EQ(more.valid, split.valid);
}

TEST(Documents, AreSplitAtTheEnd) {
  const Documents whole = split_documents({"aaaa", "bbbb", "cc"}, 0.2, Split::automatic);
  EXPECT_EQ(whole.train, (Texts{"aaaa", "bbbb"}));
  EXPECT_EQ(whole.valid, Texts{"cc"});
  // One is cut, at the end of a line, else between characters.
  const Documents lines = split_documents({"one\ntwo\nthree\n"}, 0.5, Split::tail);
  EXPECT_EQ(lines.train, Texts{"one\ntwo\n"});
  EXPECT_EQ(lines.valid, Texts{"three\n"});
  const Documents characters = split_documents({"ééé"}, 0.5, Split::tail);
  EXPECT_EQ(characters.train, Texts{"éé"});
  EXPECT_EQ(characters.valid, Texts{"é"});
  const Documents none = split_documents({"a"}, 0, Split::tail);
  EXPECT_EQ(none.train, Texts{"a"});
  EXPECT_EQ(none.valid, Texts{});
}

TEST(Documents, MustBeOnBothSides) {
  expect_error<DataError>([] { split_documents({"a"}, 0.5, Split::hash); },
                          {"--valid-share", "--split tail"});
  expect_error<DataError>([] { split_documents({"é"}, 0.5, Split::tail); }, {"--valid-share"});
}

TEST(Documents, ComeFromFilesAndFolders) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("sub"));
  folder.put("b.txt", "\xef\xbb\xbfone\ntwo");
  folder.put("sub/c.txt", "three");
  folder.put("a.bin", std::string("\0\1", 2));
  folder.put("latin.txt", "\xe9");
  DocumentSettings s;
  s.data = folder.path();
  s.valid = folder.file("sub/c.txt");
  s.unit = DocumentUnit::line;
  const Documents documents = read_documents(s);
  EXPECT_EQ(documents.train, (Texts{"one", "two", "three"}));
  EXPECT_EQ(documents.valid, Texts{"three"});
  EXPECT_EQ(documents.passed_over, 2);

  const auto refused = [&](const std::string& name) {
    DocumentSettings other = s;
    other.data = folder.file(name);
    read_documents(other);
  };
  expect_error<DataError>([&] { refused("latin.txt"); }, {"latin.txt", "UTF-8", "byte 1"});
  EXPECT_THROW(refused("none"), IoError);
  folder.put("blank.txt", "\n\n");
  expect_error<DataError>([&] { refused("blank.txt"); }, {"no text"});
}

}  // namespace
}  // namespace heed::apps
