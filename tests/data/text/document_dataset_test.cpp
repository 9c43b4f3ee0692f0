// Documents as sequences for a language model.
#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/text/document_dataset.h>
#include <heed/data/text/pretrained_tokenizer.h>

#include "../../support/expect_error.h"

namespace heed::data {
namespace {

using Texts = std::vector<std::string>;

std::shared_ptr<const Tokenizer> bytes() {
  return train_tokenizer({.kind = TokenizerKind::bytes, .normalization = Normalization::none}, {});
}

constexpr int64_t kByte = kFirstSymbol;

TEST(DocumentDataset, CutsEachDocumentIntoSequencesThatOverlapByOne) {
  const DocumentDataset documents(Texts{"abcd", "é"}, *bytes(), {.context = 3});
  // start a b c | c d end; start é é | é end: each sample has the token that follows its last.
  ASSERT_EQ(documents.size(), 3);
  EXPECT_EQ(documents.get(0, 0), (Symbols{kStart, kByte + 'a', kByte + 'b', kByte + 'c'}));
  EXPECT_EQ(documents.get(7, 1), (Symbols{kByte + 'c', kByte + 'd', kEnd}));
  EXPECT_EQ(documents.get(0, 2), (Symbols{kStart, kByte + 0xc3, kByte + 0xa9, kEnd}));
  EXPECT_EQ(documents.characters(), 5);
  EXPECT_EQ(documents.tokens(), 5 + 3);
  EXPECT_EQ(documents.longest(), 3);
  EXPECT_THROW((void)documents.get(0, 3), IndexError);
}

TEST(DocumentDataset, MarksMayBeNone) {
  const DocumentOptions bare{.context = 8, .start = -1, .end = -1};
  const DocumentDataset documents(Texts{"ab", "c", ""}, *bytes(), bare);
  ASSERT_EQ(documents.size(), 1) << "one token predicts nothing";
  EXPECT_EQ(documents.get(0, 0), (Symbols{kByte + 'a', kByte + 'b'}));
  EXPECT_EQ(documents.tokens(), 1);
  EXPECT_EQ(DocumentDataset(Texts{}, *bytes()).size(), 0);
}

TEST(DocumentDataset, IsToldApartByItsSequences) {
  const auto of = [](const Texts& texts, int64_t context) {
    return DocumentDataset(texts, *bytes(), {.context = context}).fingerprint();
  };
  EXPECT_EQ(of({"abc", "d"}, 4), of({"abc", "d"}, 4));
  EXPECT_NE(of({"abc", "d"}, 4), of({"abc", "e"}, 4));
  EXPECT_NE(of({"abc", "d"}, 4), of({"abc", "d"}, 3));
}

TEST(DocumentDataset, RefusesWhatIsNoText) {
  test::expect_error<DataError>([] { DocumentDataset(Texts{"a\xff"}, *bytes()); }, {"UTF-8"});
  EXPECT_THROW(DocumentDataset(Texts{"a"}, *bytes(), {.context = 0}), ConfigError);
}

// A document may spell out "<|end|>": that is no end.
TEST(DocumentDataset, SpecialTokensInATextArePlain) {
  GgufVocabulary v{.model = "gpt2", .pre = "gpt-2"};
  for (const char* piece : {"<", "|", "e", "n", "d", ">"}) {
    v.tokens.push_back(piece);
    v.token_types.push_back(1);
  }
  v.tokens.push_back("<|end|>");
  v.token_types.push_back(3);
  const auto tokenizer = make_tokenizer(v, "test");
  const DocumentDataset documents(Texts{"<|end|>"}, *tokenizer, {.context = 16, .start = -1, .end = 6});
  EXPECT_EQ(documents.get(0, 0), (Symbols{0, 1, 2, 3, 4, 1, 5, 6}));
}

}  // namespace
}  // namespace heed::data
