// Documents as sequences for a language model.
#include <set>

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

TEST(DocumentDataset, SamplesHaveTheTokenAfterTheirLast) {
  const DocumentDataset documents(Texts{"ab", "é"}, *bytes(), {.context = 3});
  ASSERT_EQ(documents.size(), 2);
  for (const int64_t epoch : {0, 7}) {
    EXPECT_EQ(documents.get(epoch, 0), (TokenIds{kStart, kByte + 'a', kByte + 'b', kEnd}));
    EXPECT_EQ(documents.get(epoch, 1), (TokenIds{kStart, kByte + 0xc3, kByte + 0xa9, kEnd}));
  }
  EXPECT_EQ(documents.characters(), 3);
  EXPECT_EQ(documents.tokens(), 3 + 3);
  EXPECT_EQ(documents.longest(), 3);
  EXPECT_THROW((void)documents.get(0, 2), IndexError);
}

// Each epoch predicts each token once, from sequences that follow one another, cut elsewhere.
TEST(DocumentDataset, LongDocumentsAreCutElsewhereInEachEpoch) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (size_t length = 1; length <= text.size(); ++length) {
    SCOPED_TRACE(length);
    const Texts texts{text.substr(0, length), "x"};
    const DocumentDataset documents(texts, *bytes(), {.context = 8});
    std::set<TokenIds> first;
    for (int64_t epoch = 0; epoch < 40; ++epoch) {
      TokenIds all{kStart};
      for (int64_t i = 0; i + 1 < documents.size(); ++i) {
        const TokenIds sample = documents.get(epoch, i);
        ASSERT_GE(sample.size(), 2u);
        ASSERT_LE(sample.size(), 9u);
        EXPECT_EQ(sample.front(), all.back());
        all.insert(all.end(), sample.begin() + 1, sample.end());
      }
      EXPECT_EQ(std::ssize(all), static_cast<int64_t>(length) + 2);
      EXPECT_EQ(all.back(), kEnd);
      first.insert(documents.get(epoch, 0));
      EXPECT_EQ(documents.get(epoch, 0), documents.get(epoch, 0));
    }
    if (length > 16) {
      EXPECT_GE(first.size(), 3u);
    }
  }
}

TEST(DocumentDataset, MarksMayBeNone) {
  const DocumentOptions bare{.context = 8, .start = -1, .end = -1};
  const DocumentDataset documents(Texts{"ab", "c", ""}, *bytes(), bare);
  ASSERT_EQ(documents.size(), 1) << "one token predicts nothing";
  EXPECT_EQ(documents.get(0, 0), (TokenIds{kByte + 'a', kByte + 'b'}));
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
  EXPECT_EQ(documents.get(0, 0), (TokenIds{0, 1, 2, 3, 4, 1, 5, 6}));
}

}  // namespace
}  // namespace heed::data
