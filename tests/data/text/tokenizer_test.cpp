#include <unordered_map>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/text/tokenizer.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"

namespace heed::data {
namespace {

using test::expect_error;
using Texts = std::vector<std::string>;
using Kind = TokenizerKind;

std::shared_ptr<const Tokenizer> trained(const TokenizerOptions& options, const Texts& texts) {
  return train_tokenizer(options, {std::span<const std::string>(texts)});
}

Texts pieces(const Tokenizer& tokenizer, std::string_view text) {
  Texts result;
  for (const int64_t id : tokenizer.encode(text)) result.push_back(tokenizer.piece(id));
  return result;
}

TEST(Tokenizer, CharactersAreCodePointsOfTheNormalForm) {
  const auto t = trained({.kind = Kind::characters}, {"caf\u00e9", "ca"});
  EXPECT_EQ(pieces(*t, "cafe\u0301"), (Texts{"c", "a", "f", "\u00e9"}));
  // The most frequent first, equals by their bytes; after three marks and 256 bytes.
  EXPECT_EQ(t->encode("acf\u00e9"), (TokenIds{259, 260, 261, 262}));
  EXPECT_EQ(t->vocab(), 263);
}

TEST(Tokenizer, WhatTheVocabularyLacksBecomesBytes) {
  const auto t = trained({.kind = Kind::characters}, {"ab"});
  EXPECT_EQ(pieces(*t, "a\u20ac"), (Texts{"a", "<0xe2>", "<0x82>", "<0xac>"}));
  for (const char* text : {"", "a\u20acb", "\U0001f600 x\ty\n", "\u4e2d"})
    EXPECT_EQ(t->decode(t->encode(text)), text);
  EXPECT_EQ(t->decode(TokenIds{259, 3 + 0xe2}), "a\ufffd");  // half a character
}

TEST(Tokenizer, WordsTakeTheSpaceBeforeThemAndGiveEveryTextBack) {
  const auto t = trained({.kind = Kind::words}, {"hello, the world. The world!", "hello hello"});
  EXPECT_EQ(pieces(*t, "hello, world"), (Texts{" hello", ",", " world"}));
  for (const char* text :
       {"", " ", "  a  b ", "hello,world ( x )", "don't\tstop\nnow", "\u00a0a", "unseen w\u00f6rds"})
    EXPECT_EQ(t->decode(t->encode(text)), text) << '[' << text << ']';
}

TEST(Tokenizer, SymbolsAreAClosedSet) {
  const auto t = trained({.kind = Kind::symbols}, {"HH IY D", "D"});
  EXPECT_EQ(pieces(*t, " HH\tIY  D "), (Texts{"HH", "IY", "D"}));
  EXPECT_EQ(t->decode(t->encode(" HH\tIY  D ")), "HH IY D");
  EXPECT_EQ(pieces(*t, "HH ZZ"), (Texts{"HH", "<unk>"}));
  EXPECT_EQ(t->decode(t->encode("ZZ D")), "<unk> D");
  EXPECT_EQ(t->vocab(), 7);
  EXPECT_EQ(t->encode(" \t "), TokenIds());
}

TEST(Tokenizer, BytesNeedNoTexts) {
  const auto t = trained({.kind = Kind::bytes}, {});
  EXPECT_EQ(t->vocab(), 259);
  EXPECT_EQ(t->encode("A\u00e9"), (TokenIds{3 + 'A', 3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(t->decode(t->encode("A\u00e9")), "A\u00e9");
}

TEST(Tokenizer, MarksAreNoText) {
  const auto t = trained({.kind = Kind::characters}, {"ab"});
  EXPECT_EQ(t->decode(TokenIds{kStart, 259, kEnd, kPad, 260}), "ab");
  EXPECT_EQ(t->piece(kStart), "<start>");
  EXPECT_EQ(t->piece(kEnd), "<end>");
  EXPECT_EQ(t->piece(kPad), "<pad>");
  expect_error<IndexError>([&] { t->decode(TokenIds{261}); }, {"261", "0 to 260"});
  expect_error<IndexError>([&] { t->piece(-1); }, {"-1"});
}

TEST(Tokenizer, StreamsOfIdsGiveWholeCharacters) {
  const Texts texts{"one two two  three."};
  for (const Kind kind : {Kind::characters, Kind::words, Kind::symbols, Kind::bytes}) {
    const auto t = trained({.kind = kind}, texts);
    StreamDecoder stream(*t);
    for (const char* text : {"one  three.", " \u20ac two", ""}) {
      std::string result;
      for (const int64_t id : t->encode(text)) {
        const std::string part = stream.push(id);
        EXPECT_FALSE(invalid_utf8(part));
        result += part;
      }
      result += stream.finish();
      EXPECT_EQ(result, t->decode(t->encode(text)));
      if (kind != Kind::symbols) {
        EXPECT_EQ(result, text);
      }
    }
  }
}

TEST(Tokenizer, OptionsLimitTheVocabulary) {
  const Texts texts{"aaabbc"};
  EXPECT_EQ(trained({.kind = Kind::characters, .max_vocab = 261}, texts)->vocab(), 261);
  EXPECT_EQ(trained({.kind = Kind::characters, .min_count = 2}, texts)->vocab(), 261);
  EXPECT_EQ(pieces(*trained({.kind = Kind::characters, .lowercase = true}, {"abc"}), "ABC"),
            (Texts{"a", "b", "c"}));
  expect_error<ConfigError>([&] { trained({.kind = Kind::words, .max_vocab = 258}, texts); }, {"258", "259"});
  expect_error<ConfigError>([&] { trained({.min_count = 0}, texts); }, {"min_count is 0"});
  expect_error<ConfigError>([&] { trained({.max_vocab = int64_t{1} << 40}, texts); }, {"at most"});
}

TEST(Tokenizer, SeveralCorporaShareAVocabulary) {
  const Texts a{"x"}, b{"y"};
  const auto t = train_tokenizer({.kind = Kind::symbols}, {a, b});
  EXPECT_EQ(t->encode("x y"), (TokenIds{4, 5}));
}

TEST(Tokenizer, TextsThatAreNotUtf8AreRefused) {
  const auto t = trained({.kind = Kind::characters}, {"a"});
  expect_error<DataError>([&] { t->encode("ab\xff"); }, {"not UTF-8", "byte 2"});
  expect_error<DataError>([&] { trained({}, {"\xff"}); }, {"byte 0"});
}

TEST(Tokenizer, FilesGiveItBack) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("t");
  for (const Kind kind : {Kind::characters, Kind::words, Kind::symbols, Kind::bytes}) {
    const auto t = trained({.kind = kind, .normalization = Normalization::nfkc, .lowercase = true},
                           {"one\\two\nthree \\n \u00e9"});
    save_tokenizer(*t, path);
    const auto copy = load_tokenizer(path);
    EXPECT_EQ(copy->serialize(), t->serialize());
    for (const char* text : {"one\\two\nthree", "Four \\n \u00c9"})
      EXPECT_EQ(copy->encode(text), t->encode(text));
  }
  expect_error<IoError>([&] { load_tokenizer(path + "x"); }, {"x"});
}

TEST(Tokenizer, DifferencesAreNamed) {
  const auto t = trained({.kind = Kind::symbols}, {"A A B"});
  const auto differ = [&](const TokenizerOptions& options, const Texts& texts) {
    return difference(*t, *trained(options, texts));
  };
  EXPECT_EQ(differ({.kind = Kind::symbols, .max_vocab = 100}, {"A A B"}), "");  // limits that were not met
  EXPECT_EQ(differ({.kind = Kind::words}, {"A A B"}), "its tokens are words, not symbols");
  EXPECT_EQ(differ({.kind = Kind::symbols, .normalization = Normalization::nfkc}, {"A A B"}),
            "its normal form is nfkc, not nfc");
  EXPECT_EQ(differ({.kind = Kind::symbols, .lowercase = true}, {"A A B"}), "it makes letters small");
  EXPECT_EQ(differ({.kind = Kind::symbols}, {"A B B"}), "id 4 is 'B', not 'A'");
  EXPECT_EQ(differ({.kind = Kind::symbols}, {"A A B C"}), "it has 7 ids, not 6");
  EXPECT_EQ(differ({.kind = Kind::symbols}, {"A A"}), "it has 5 ids, not 6");
}

TEST(Tokenizer, ForgedFilesAreRefused) {
  const std::string good = trained({.kind = Kind::characters}, {"ab"})->serialize();
  EXPECT_EQ(parse_tokenizer(good, "f")->vocab(), 261);
  const auto refuse = [&](std::string from, const std::string& to, const std::string& message) {
    std::string forged = good;
    forged.replace(forged.find(from), from.size(), to);
    expect_error<CheckpointError>([&] { parse_tokenizer(forged, "f"); }, {"f: ", message});
  };
  refuse("heed-tokenizer 1", "heed-tokenizer 9", "no tokenizer");
  refuse("kind characters", "kind letters", "unknown");
  refuse("nfc", "nfd", "unknown");
  refuse("lowercase false", "lowercase perhaps", "lowercase");
  refuse("max_vocab 32000", "max_vocab 99999999999999999999", "max_vocab");
  refuse("min_count 1\n", "", "min_count");
  refuse("\n\n", "\n", "empty line");
  refuse("a\nb\n", "a\nb", "piece 2 of the vocabulary is cut short");
  refuse("a\nb\n", "a\na\n", "stands there twice");
  refuse("a\nb\n", "a\n\n", "empty");
  refuse("a\nb\n", "a\n\xff\n", "not UTF-8");
  refuse("a\nb\n", "a\n\\x\n", "unknown escape");
  refuse("a\nb\n", "a\n\\\n", "unknown escape");
  refuse("kind characters", "kind bytes", "no vocabulary");
  for (size_t size = 0; size < good.size(); ++size) {
    if (size == good.size() - 2 || size == good.size() - 4)
      continue;  // the ends of a piece and of the header
    EXPECT_THROW(parse_tokenizer(good.substr(0, size), "f"), CheckpointError) << size;
  }
}

// The table's hash is fixed, so that anybody can find pieces that all stand in one of its buckets.
TEST(Tokenizer, PiecesThatCollideAreRefused) {
  constexpr size_t kColliding = 1001;
  std::unordered_map<std::string_view, int32_t> table;
  table.reserve(kColliding);
  std::string colliding, others;
  for (size_t number = 0, found = 0; found < kColliding; ++number) {
    const std::string piece = std::to_string(number);
    if (number < kColliding) others += piece + '\n';
    if (table.bucket(piece) != 0) continue;
    colliding += piece + '\n';
    ++found;
  }
  const std::string header = trained({.kind = Kind::words}, {})->serialize();
  EXPECT_EQ(parse_tokenizer(header + others, "f")->vocab(), 259 + 1001);
  expect_error<CheckpointError>([&] { parse_tokenizer(header + colliding, "f"); },
                                {"f: the vocabulary", "collide"});
}

TEST(Tokenizer, KindsHaveNames) {
  for (const char* kind : {"characters", "words", "symbols", "bytes", "unigram", "bpe"})
    EXPECT_STREQ(name(parse_tokenizer_kind(kind)), kind);
  expect_error<ConfigError>([] { parse_tokenizer_kind("letters"); }, {"letters", "characters"});
  EXPECT_STREQ(name(Kind::pretrained), "pretrained");
  expect_error<ConfigError>([] { parse_tokenizer_kind("pretrained"); }, {"pretrained"});
  expect_error<ConfigError>([] { trained({.kind = Kind::pretrained}, {"a"}); }, {"loaded, not trained"});
}

#ifdef HEED_HAVE_SENTENCEPIECE
// Of more text than is taken every second one is left out, and none of its characters is known.
TEST(Tokenizer, SubWordsOfLongCorporaAreLearnedFromEvenlySpreadTexts) {
  const auto line = [](const char* words) {
    std::string text;
    while (text.size() < 4000) text += words;
    return text;
  };
  const std::string even = line("ab abc "), odd = line("zy xyz ");
  const auto learn = [&](int64_t lines) {
    return train_tokenizer_on_stream({.kind = Kind::bpe, .max_vocab = 270}, [&](const auto& f) {
      for (int64_t i = 0; i < lines; ++i) f(i % 2 == 0 ? even : odd);
    });
  };
  const auto known = [](const Tokenizer& t, const char* text) {
    for (const std::string& piece : pieces(t, text))
      if (piece.starts_with("<0x")) return false;
    return true;
  };
  const int64_t fits = kMaxSubWordBytes / std::ssize(even);
  const auto all = learn(fits), half = learn(fits + 2);
  EXPECT_TRUE(known(*all, "abc") && known(*all, "xyz"));
  EXPECT_TRUE(known(*half, "abc") && !known(*half, "xyz"));
}

TEST(Tokenizer, SubWordsAreLearntSavedAndLossless) {
  Texts texts;
  for (int i = 0; i < 200; ++i)
    texts.push_back(concat("the lowest lower low newer newest wide wider number ", i, " of these"));
  for (const Kind kind : {Kind::unigram, Kind::bpe}) {
    const auto t = trained({.kind = kind, .max_vocab = 330}, texts);
    EXPECT_LE(t->vocab(), 330);
    EXPECT_GT(t->vocab(), 280);
    EXPECT_LT(t->encode("the lowest").size(), 8u);
    for (const char* text : {"the lowest of wide", "unseen \u4e2d\u20ac"})
      EXPECT_EQ(t->decode(t->encode(text)), text);
    for (const int64_t id : t->encode("the lowest")) EXPECT_GE(id, kFirstSymbol);
    const auto copy = parse_tokenizer(t->serialize(), "f");
    EXPECT_EQ(copy->encode("newest wider"), t->encode("newest wider"));
    EXPECT_EQ(trained({.kind = kind, .max_vocab = 330}, texts)->serialize(), t->serialize());
    const std::string header = t->serialize().substr(0, t->serialize().find("\n\n") + 2);
    for (const char* forged : {"", "x", "\n\x03 abc"})
      EXPECT_THROW(parse_tokenizer(header + forged, "f"), CheckpointError) << forged;
  }
  // A model that is cut or changed anywhere is refused, or one that can be used.
  const std::string good = trained({.kind = Kind::bpe, .max_vocab = 330}, texts)->serialize();
  const size_t model = good.find("\n\n") + 2;
  int refused = 0;
  const auto use = [&](const std::string& forged) {
    try {
      const auto t = parse_tokenizer(forged, "f");
      for (const int64_t id : t->encode("the lowest")) EXPECT_LT(id, t->vocab());
    } catch (const CheckpointError&) {
      ++refused;
    }
  };
  for (size_t at = model; at < good.size(); at += 37) {
    use(good.substr(0, at));
    for (const char byte : {'\0', '\xff'}) {
      std::string forged = good;
      forged[at] = byte;
      use(forged);
    }
  }
  EXPECT_GT(refused, 100);
  expect_error<DataError>([] { trained({.kind = Kind::bpe}, {}); }, {"no texts"});
  expect_error<DataError>([] { trained({.kind = Kind::bpe, .max_vocab = 5000}, {"a b"}); },
                          {"5000 sub-words"});
}
#else
TEST(Tokenizer, SubWordsNeedSentencepiece) {
  expect_error<ConfigError>([] { trained({.kind = Kind::bpe}, {"a"}); }, {"sentencepiece"});
}
#endif

}  // namespace
}  // namespace heed::data
