// From words, as splitting leaves them, to ids: WordPiece and byte-level BPE.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary.h"

namespace heed::data::detail {

/// What encoding one text needs beside the ids; one for each thread that encodes.
struct WordScratch {
  struct Symbol {
    int32_t id, before, after;  // positions; -1: none. An id of -1 is merged into another
  };
  struct Candidate {
    uint32_t rank, at;
    int32_t merged;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<int32_t> ids;  // of a word
};

class WordModel {
 public:
  virtual ~WordModel() = default;
  /// The ids of a word, which is not empty, into scratch.ids.
  virtual void encode(std::string_view word, WordScratch& scratch) const = 0;
};

struct WordPieceOptions {
  int32_t unknown = 0;              // the id of a word that the pieces do not make up
  std::string continuation = "##";  // what pieces within a word begin with
  int64_t most_characters = 100;    // of a word; a longer one is unknown
};
/// `place` names the model in errors: see check_collisions().
std::unique_ptr<WordModel> make_word_piece(const Vocabulary& vocabulary, const WordPieceOptions& options,
                                           const std::string& place);

/// Two pieces that become one; earlier merges come first.
struct Merge {
  int32_t left, right, merged;
};

struct BytePairOptions {
  std::vector<Merge> merges;
  bool whole_words = false;  // a word that is a piece is not split ("ignore_merges")
  int32_t unknown = -1;      // for bytes that are no piece; -1: they are passed over
};
/// `vocabulary` holds pieces as GPT-2 writes them, a character for each byte; `place` as above.
std::unique_ptr<WordModel> make_byte_pairs(const Vocabulary& vocabulary, const BytePairOptions& options,
                                           const std::string& place);

/// The bytes that a piece of GPT-2's stands for; the piece itself where it has other characters.
std::string piece_bytes(std::string_view piece);
/// Bytes as such a piece.
std::string bytes_piece(std::string_view bytes);

}  // namespace heed::data::detail
