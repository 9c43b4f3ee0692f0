#include <thread>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/io/detail/json.h>
#include <heed/core/io/file.h>
#include <heed/data/text/pretrained_tokenizer.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"

namespace heed::data {
namespace {

using heed::detail::Json;
using test::expect_error;
using List = std::vector<Json>;

std::string fixture(const std::string& name) {
  return read_whole_file(std::string(HEED_FIXTURES) + "/tokenizers/" + name, uint64_t{1} << 24);
}

Json document(const std::string& name) {
  return heed::detail::parse_json(fixture(name), name, {"fixture", "file"});
}

TokenIds ids_of(const Json& json) {
  TokenIds ids;
  for (const Json& id : *json.as<List>()) ids.push_back(static_cast<int64_t>(*id.as<double>()));
  return ids;
}

std::string streamed(const Tokenizer& tokenizer, const TokenIds& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const int64_t id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_FALSE(invalid_utf8(part)) << id;
    text += part;
  }
  return text + decoder.finish();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

class Published : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const PretrainedTokenizer> tokenizer() const {
    return parse_tokenizer_json(fixture(std::string(GetParam()) + ".json"), GetParam());
  }
  List texts = *document("texts.json").as<List>();
  Json expected = document(std::string(GetParam()) + "_expected.json");
};

TEST_P(Published, TheIdsAndTextsAreThoseOfThePackageTokenizers) {
  const auto t = tokenizer();
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = *texts[i].as<std::string>();
    const TokenIds ids = ids_of((*expected.find("ids")->as<List>())[i]);
    EXPECT_EQ(t->encode(text), ids) << i << ": " << text;
    EXPECT_EQ(t->encode(text), ids) << "a second time, " << i;
    const auto* const decoded = (*expected.find("decoded")->as<List>())[i].as<std::string>();
    EXPECT_EQ(t->decode(ids), decoded ? *decoded : text) << i;
    EXPECT_EQ(streamed(*t, ids), t->decode(ids)) << i;
  }
}

TEST_P(Published, MarksPairsAndTruncationToo) {
  const auto t = tokenizer();
  for (const Json& json : *expected.find("pairs")->as<List>()) {
    const List& row = *json.as<List>();
    const auto text = [&](size_t i) {
      return *texts[static_cast<size_t>(*row[i].as<double>())].as<std::string>();
    };
    const EncodeOptions options{.max_length = static_cast<int64_t>(*row[0].as<double>())};
    EXPECT_EQ(t->encode(text(1), options), ids_of(row[3])) << options.max_length;
    const PairEncoding pair = t->encode_pair(text(1), text(2), options);
    EXPECT_EQ(pair.ids, ids_of(row[4])) << options.max_length;
    EXPECT_EQ(pair.segments, ids_of(row[5])) << options.max_length;
  }
}

TEST_P(Published, SerializedAndReadBackItIsTheSame) {
  const auto t = tokenizer();
  const test::TemporaryFolder folder;
  save_tokenizer(*t, folder.file("t"));
  const std::shared_ptr<const Tokenizer> copy = load_tokenizer(folder.file("t"));
  EXPECT_EQ(copy->serialize(), t->serialize());
  EXPECT_EQ(copy->options().kind, TokenizerKind::pretrained);
  EXPECT_EQ(copy->encode("It doesn't cost \u20ac12."), t->encode("It doesn't cost \u20ac12."));
}

INSTANTIATE_TEST_SUITE_P(Styles, Published,
                         testing::Values("bert", "bert_cased", "gpt2", "roberta", "llama3", "qwen2",
                                         "smollm2"),
                         [](const auto& info) { return std::string(info.param); });

std::shared_ptr<const PretrainedTokenizer> small_bert() {
  return parse_vocab_txt("[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\naff\n.\na\n##'s\n", "vocab.txt");
}

TEST(PretrainedTokenizer, WordPieceTakesTheLongestPiecesFirst) {
  const auto t = small_bert();
  EXPECT_EQ(t->encode("Unaffable aff."), (TokenIds{4, 5, 6, 7, 8}));
  EXPECT_EQ(t->encode("unaffables"), (TokenIds{1}));  // its end is no piece
  EXPECT_EQ(t->encode("a", {}), (TokenIds{2, 9, 3}));
  EXPECT_EQ(t->encode(std::string("a\0\x01"
                                  "a",
                                  4)),
            (TokenIds{1}));  // control characters go: "aa"
  EXPECT_EQ(t->decode(TokenIds{2, 4, 5, 6, 7, 8, 3}), "unaffable aff.");
  EXPECT_EQ(t->find("##able"), 6);
  EXPECT_EQ(t->find("able"), std::nullopt);
  EXPECT_TRUE(t->is_mark(3));
  EXPECT_FALSE(t->is_mark(4));
  EXPECT_EQ(t->vocab(), 11);
  expect_error<IndexError>([&] { t->decode(TokenIds{11}); }, {"11", "0 to 10"});
  expect_error<DataError>([&] { t->encode("a\xff"); }, {"not UTF-8", "byte 1"});
  expect_error<ConfigError>([&] { t->encode("a", {.max_length = 1}); }, {"max_length is 1", "2"});
  EXPECT_EQ(t->encode("un a aff", {.max_length = 4, .truncation = Truncation::beginning}),
            (TokenIds{2, 9, 7, 3}));
  EXPECT_EQ(t->encode("[SEP]", {.add_marks = false}), (TokenIds{3}));
  EXPECT_EQ(t->encode("[SEP]", {.add_marks = false, .special_tokens = false}), (TokenIds{1, 1, 1}));
}

const char* const kMerges = "#version: 0.2\nh e\nl l\nhe ll\n\xc4\xa0 hell\n";  // Ġ
std::string byte_vocabulary() {
  std::string json = "{\"<|endoftext|>\": 0";
  int id = 1;
  for (const char* piece : {"h", "e", "l", "o", "\xc4\xa0", "\xc3\xa2", "\xc4\xa4", "\xc2\xac", "he", "ll",
                            "hell", "\xc4\xa0hell"})
    json += concat(", ", heed::detail::json_string(piece), ": ", id++);
  return json + "}";
}

TEST(PretrainedTokenizer, BytePairsMergeByRank) {
  const auto t = parse_vocab_and_merges(byte_vocabulary(), kMerges, "folder");
  EXPECT_EQ(t->encode("hello hell"), (TokenIds{11, 4, 12}));
  EXPECT_EQ(t->encode("ehell"), (TokenIds{2, 11}));
  EXPECT_EQ(t->encode("\u20ac"), (TokenIds{6, 7, 8}));  // its three bytes
  EXPECT_EQ(t->encode("o<|endoftext|>"), (TokenIds{4, 0}));
  EXPECT_EQ(t->decode(TokenIds{11, 4, 0, 12}), "hello hell");
  EXPECT_EQ(t->encode("xo"), (TokenIds{4}));  // no piece has the byte of x
}

TEST(PretrainedTokenizer, StreamsGiveWholeCharactersOnly) {
  const auto t = parse_vocab_and_merges(byte_vocabulary(), kMerges, "folder");
  StreamDecoder stream(*t);
  EXPECT_EQ(stream.push(12), " hell");
  EXPECT_EQ(stream.push(6), "");
  EXPECT_EQ(stream.push(0), "");  // a mark
  EXPECT_EQ(stream.push(7), "");
  EXPECT_THROW(stream.push(13), IndexError);
  EXPECT_EQ(stream.push(8), "\u20ac");
  EXPECT_EQ(stream.push(6), "");
  EXPECT_EQ(stream.push(1), "\ufffdh");  // which broke off
  EXPECT_EQ(stream.push(6), "");
  EXPECT_EQ(stream.push(7), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(t->decode(TokenIds{6, 7, 4}), "\ufffdo");
}

TEST(PretrainedTokenizer, FoldersAndFilesOfEachKind) {
  const test::TemporaryFolder folder;
  expect_error<IoError>([&] { load_pretrained_tokenizer(folder.path()); }, {"vocab.txt"});
  folder.put("vocab.txt", "[UNK]\r\na\r\n");
  EXPECT_EQ(load_pretrained_tokenizer(folder.path())->encode("a b"), (TokenIds{1, 0}));
  EXPECT_EQ(load_pretrained_tokenizer(folder.file("vocab.txt"))->encode("A"), (TokenIds{1}));
  folder.put("vocab.json", byte_vocabulary());
  folder.put("merges.txt", kMerges);
  EXPECT_EQ(load_pretrained_tokenizer(folder.path())->encode("hell"), (TokenIds{11}));
  folder.put("tokenizer.json", small_bert()->serialize());
  EXPECT_EQ(load_pretrained_tokenizer(folder.path())->encode("aff"), (TokenIds{7}));
  expect_error<CheckpointError>([&] { parse_vocab_txt("a\nb\n", "v"); }, {"v:", "[UNK]"});
  expect_error<CheckpointError>([&] { parse_vocab_txt("[UNK]\na\na\n", "v"); }, {"'a'", "twice"});
  expect_error<CheckpointError>([&] { parse_vocab_and_merges(byte_vocabulary(), "h x\n", "v"); }, {"'x'"});
  expect_error<CheckpointError>([&] { parse_vocab_and_merges(byte_vocabulary(), "h e l\n", "v"); },
                                {"merge"});
  expect_error<CheckpointError>([&] { parse_vocab_and_merges("[1]", "", "v"); }, {"vocab"});
}

GgufVocabulary gguf() {
  return {.model = "gpt2",
          .pre = "smollm",
          .tokens = {"<s>", "1", "2", "a", "12", "\xc4\xa0",
                     "\xc4\xa0"
                     "a",
                     "<tool>"},
          .token_types = {3, 1, 1, 1, 1, 1, 1, 4},
          .merges = {"1 2", "\xc4\xa0 a"},
          .bos = 0};
}

TEST(PretrainedTokenizer, GgufVocabularies) {
  GgufVocabulary v = gguf();
  EXPECT_EQ(make_tokenizer(v, "f")->encode("a12 a<s><tool>"), (TokenIds{3, 1, 2, 6, 0, 7}));
  EXPECT_EQ(make_tokenizer(v, "f")->encode("a", {}), (TokenIds{3}));
  EXPECT_EQ(make_tokenizer(v, "f")->decode(TokenIds{0, 3, 7}), "a<tool>");
  v.add_bos = true;
  v.pre = "llama-bpe";
  EXPECT_EQ(make_tokenizer(v, "f")->encode("12 a", {}), (TokenIds{0, 4, 6}));
  v.pre = "qwen2";
  EXPECT_EQ(make_tokenizer(v, "f")->encode("12", {}), (TokenIds{0, 1, 2}));
  v.pre = "gpt-2";
  EXPECT_EQ(make_tokenizer(v, "f")->encode("12", {}), (TokenIds{0, 4}));
  v.pre = "deepseek";
  expect_error<ConfigError>([&] { make_tokenizer(v, "f"); }, {"f:", "'deepseek'"});
  v = gguf();
  v.token_types.pop_back();
  expect_error<CheckpointError>([&] { make_tokenizer(v, "f"); }, {"8 tokens and 7 types"});
  v = gguf();
  v.bos = 8;
  expect_error<CheckpointError>([&] { make_tokenizer(v, "f"); }, {"8"});
  v.model = "llama";
  v.bos = 0;
  expect_error<ConfigError>([&] { make_tokenizer(v, "f"); }, {"'llama'"});
  v = {.model = "bert",
       .tokens = {"[UNK]", "[CLS]", "[SEP]", "\u2581un", "able", "\u2581."},
       .token_types = {2, 3, 3, 1, 1, 1},
       .bos = 1,
       .eos = 2,
       .unknown = 0};
  EXPECT_EQ(make_tokenizer(v, "f")->encode("Unable x.", {}), (TokenIds{1, 3, 4, 0, 5, 2}));
}

// What heed lacks is named, whatever else the file says.
TEST(PretrainedTokenizer, WhatIsNotSupportedIsNamed) {
  const auto refuse = [](const std::string& style, const std::string& from, const std::string& to,
                         const std::string& name) {
    const std::string json = replaced(fixture(style + ".json"), from, to);
    expect_error<ConfigError>([&] { parse_tokenizer_json(json, "f"); }, {"f", name, "not supported"});
  };
  refuse("bert", "BertNormalizer", "Precompiled", "normalizer: the type 'Precompiled'");
  refuse("bert", "BertPreTokenizer", "Metaspace", "pre_tokenizer: the type 'Metaspace'");
  refuse("bert", "\"type\":\"WordPiece\",\"unk", "\"type\":\"Unigram\",\"unk", "model: the type 'Unigram'");
  refuse("bert", "TemplateProcessing", "Magic", "post_processor: the type 'Magic'");
  refuse("bert", "\"decoder\":{\"type\":\"WordPiece\"", "\"decoder\":{\"type\":\"CTC\"",
         "decoder: the type 'CTC'");
  refuse("bert", "\"clean_text\":true", "\"clean_text\":true,\"magic\":1", "'magic'");
  refuse("bert", "\"version\":", "\"magic\":1,\"version\":", "'magic'");
  refuse("qwen2", "\\\\p{N}|", "\\\\p{N}{2}|", "pattern");
  refuse("qwen2", "Isolated", "Removed", "behavior");
  refuse("gpt2", "\"dropout\":null", "\"dropout\":0.1", "dropout");
  refuse("gpt2", "\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback");
  refuse("gpt2", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "'</w>'");
  refuse("gpt2", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"",
         "'Whitespace'");
}

TEST(PretrainedTokenizer, ForgedFilesAreRefused) {
  const auto refuse = [](const std::string& style, const std::string& from, const std::string& to,
                         const std::string& message) {
    const std::string json = replaced(fixture(style + ".json"), from, to);
    expect_error<CheckpointError>([&] { parse_tokenizer_json(json, "f"); }, {"f", message});
  };
  refuse("bert", "\"[SEP]\":3", "\"[SEP]\":2", "two pieces");
  refuse("bert", "\"[SEP]\":3", "\"[SEP]\":16000000", "16000000");
  refuse("bert", "\"[SEP]\":3", "\"[SEP]\":-1", "no number");
  refuse("bert", "\"[SEP]\":3", "\"[SEP]\":3.5", "no number");
  refuse("bert", "\"ids\":[3]", "\"ids\":[70000]", "70000");
  refuse("bert", "\"max_input_chars_per_word\":100", "\"max_input_chars_per_word\":1e9",
         "max_input_chars_per_word");
  refuse("bert", "\"unk_token\":\"[UNK]\"", "\"unk_token\":\"?!\"", "'?!'");
  refuse("bert", "\"id\":4,\"content\":\"[MASK]\"", "\"id\":40,\"content\":\"[MASK]\"", "[MASK]");
  refuse("bert", "\"added_tokens\":[", "\"added_tokens\":[7,", "no object");
  refuse("bert", "\"clean_text\":true", "\"clean_text\":1", "clean_text");
  refuse("gpt2", "\"merges\":[", "\"merges\":[\"a\",", "merge");
  refuse("gpt2", "\"vocab\":{", "\"vocab\":{\"!\":2,", "twice");
  const std::string good = small_bert()->serialize();
  for (size_t size = 0; size + 2 < good.size(); ++size)
    EXPECT_THROW(parse_tokenizer_json(good.substr(0, size), "f"), CheckpointError) << size;
}

// The hashes of the tables are fixed, so that anybody can find entries that stand in one another's way: 2000
// in a sixteenth of the slots.
constexpr int kColliding = 2000;
bool collides(uint64_t hash, uint64_t slots) { return (hash & (slots - 1)) < slots / 16; }

TEST(PretrainedTokenizer, PiecesThatCollideAreRefused) {
  std::string pieces = "[UNK]\n";
  for (int number = 0, found = 0; found < kColliding; ++number) {
    const std::string piece = concat(number);
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : piece) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    if (!collides(hash ^ hash >> 29, 8192)) continue;
    pieces += piece + '\n';
    ++found;
  }
  expect_error<CheckpointError>([&] { parse_vocab_txt(pieces, "f"); }, {"f: the model", "collide"});
}

TEST(PretrainedTokenizer, MergesThatCollideAreRefused) {
  const auto piece = [](uint64_t id) {
    return std::string{static_cast<char>('a' + id / 16), static_cast<char>('a' + id % 16)};
  };
  std::string vocabulary = "{\"aa\": 0", merges;
  for (uint64_t id = 1; id < 256; ++id) vocabulary += concat(", \"", piece(id), "\": ", id);
  for (uint64_t pair = 0, found = 0; found < kColliding; ++pair) {
    const uint64_t left = pair / 256, right = pair % 256;
    uint64_t hash = left << 32 | right;
    hash = (hash ^ hash >> 31) * 0x9e3779b97f4a7c15u;
    if (!collides(hash ^ hash >> 32, 4096)) continue;
    vocabulary += concat(", \"", piece(left), piece(right), "\": ", 256 + found++);
    merges += concat(piece(left), ' ', piece(right), '\n');
  }
  expect_error<CheckpointError>([&] { parse_vocab_and_merges(vocabulary + "}", merges, "f"); },
                                {"f: the model", "collide"});
}

TEST(PretrainedTokenizer, LongWordsTakeTimeInProportion) {
  const auto bpe = parse_tokenizer_json(fixture("llama3.json"), "f");
  const auto bert = parse_tokenizer_json(fixture("bert.json"), "f");
  std::string letters, marks = "a";
  for (int i = 0; i < 1'000'000; ++i) letters += "thequickbrown"[i % 13];
  for (int i = 0; i < 200'000; ++i)
    marks += i % 2 ? "\u302e" : "\U0001d165";  // marks that stay, out of order
  EXPECT_EQ(bpe->decode(bpe->encode(letters)), letters);
  EXPECT_EQ(bert->encode(letters), (TokenIds{1}));
  EXPECT_EQ(bert->encode(marks), (TokenIds{1}));
  const std::string spaces(1'000'000, ' ');
  EXPECT_EQ(bpe->decode(bpe->encode(spaces)), spaces);
  EXPECT_EQ(bert->encode(spaces), TokenIds());
  const std::string strips = replaced(fixture("gpt2.json"), "\"content\":\"<word>\",\"single_word\":true",
                                      "\"content\":\" \",\"single_word\":false");
  EXPECT_EQ(parse_tokenizer_json(strips, "f")->encode(spaces), TokenIds(spaces.size(), 600));
}

TEST(PretrainedTokenizer, LongPiecesTakeTimeInProportion) {
  constexpr size_t kRepeats = 2'000'000;
  std::string piece = "a", text = "a";
  for (size_t i = 0; i < kRepeats; ++i) piece += " .", text += ".";
  const auto t = parse_vocab_txt("[UNK]\n" + piece + "\n##" + piece + "\n", "vocab.txt");
  EXPECT_EQ(t->decode(TokenIds{1, 2, 2}), text + text + text);
}

TEST(PretrainedTokenizer, SeveralThreadsMayEncode) {
  const auto t = parse_tokenizer_json(fixture("gpt2.json"), "f");
  const List texts = *document("texts.json").as<List>();
  std::vector<TokenIds> alone;
  for (const Json& text : texts) alone.push_back(t->encode(*text.as<std::string>()));
  const auto encode_all = [&] {
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(t->encode(*texts[i].as<std::string>()), alone[i]);
  };
  std::thread other(encode_all);
  encode_all();
  other.join();
}

}  // namespace
}  // namespace heed::data
