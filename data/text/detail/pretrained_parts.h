// What a pretrained tokenizer is made of.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <heed/data/text/pretrained_tokenizer.h>

#include "added_tokens.h"
#include "bert_text.h"
#include "normal_text.h"
#include "splitting.h"
#include "vocabulary.h"
#include "word_cache.h"
#include "word_model.h"

namespace heed::data::detail {

struct Normalizer {
  enum class Kind { bert, form, lowercase } kind;
  BertOptions bert = {};
  NormalForm form = {};

  std::string operator()(std::string_view text) const;
};

/// A sequence with its marks.
struct Template {
  struct Part {
    enum class Kind { mark, a, b } kind;
    int64_t id = 0;  // of a mark
    int64_t segment = 0;
  };
  std::vector<Part> single = {{Part::Kind::a}};
  std::vector<Part> pair = {{Part::Kind::a}, {Part::Kind::b, 0, 1}};
};

struct PieceDecoder {
  enum class Kind {
    spaced,      // pieces with a space between them
    byte_level,  // the bytes that GPT-2's pieces stand for
    word_piece,  // pieces that begin with `continuation` join the one before them
  } kind = Kind::spaced;
  std::string continuation = "##";
  bool cleanup = true;  // no space before punctuation and the ends of contractions

  std::string operator()(const std::string& piece, bool first) const;
};

/// Memory that encoding uses, and words met before.
struct EncodeScratch {
  WordCache cache;
  WordScratch word;
  std::vector<Segment> segments, inner;
  std::vector<std::string_view> words, cut;
  std::vector<std::string> spaced;  // pieces with a space in front
  std::string normal;
};

/// One for each thread that encodes at the same time.
class ScratchPool {
 public:
  std::unique_ptr<EncodeScratch> take();
  void give_back(std::unique_ptr<EncodeScratch> scratch);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeScratch>> free_;
};

}  // namespace heed::data::detail

namespace heed::data {

struct PretrainedTokenizer::Parts {
  std::string json;                      // tokenizer.json
  detail::Vocabulary vocabulary;         // of the model
  std::map<int64_t, std::string> added;  // pieces that the model's vocabulary lacks
  std::vector<bool> marks;               // by id
  std::vector<detail::Normalizer> normalizers;
  std::vector<detail::Splitter> splitters;
  detail::AddedTokens in_text, in_normal_form;
  std::unique_ptr<detail::WordModel> model;
  detail::Template marked;
  detail::PieceDecoder decoder;
  TokenizerOptions options = {.kind = TokenizerKind::pretrained, .normalization = Normalization::none};
  mutable detail::ScratchPool pool;

  std::string normalize(std::string_view text) const;
  void encode(std::string_view text, bool special_tokens, TokenIds& ids) const;

 private:
  void encode_segment(std::string_view text, bool special_tokens, detail::EncodeScratch& scratch,
                      TokenIds& ids) const;
  void encode_words(std::string_view text, detail::EncodeScratch& scratch, TokenIds& ids) const;
};

}  // namespace heed::data
