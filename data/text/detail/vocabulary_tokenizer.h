// The tokenizers that look pieces of a text up in a list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <heed/data/text/tokenizer.h>

#include "vocabulary.h"

namespace heed::data::detail {

/// Ids: the marks, then 256 bytes or for symbols <unk>, then the pieces.
class VocabularyTokenizer final : public Tokenizer {
 public:
  VocabularyTokenizer(const TokenizerOptions& options, Vocabulary pieces);

  TokenIds encode(std::string_view text) const override;
  std::string bytes(int64_t id, bool first) const override;
  std::string piece(int64_t id) const override;
  int64_t vocab() const override;
  const TokenizerOptions& options() const override { return options_; }
  std::string serialize() const override;

 private:
  TokenizerOptions options_;
  Vocabulary pieces_;  // their ids less first_piece()
};

/// The id of the first piece.
int64_t first_piece(TokenizerKind kind);

/// The most frequent pieces of the texts, most frequent first, equals by their bytes.
std::vector<std::string> frequent_pieces(const TokenizerOptions& options, const TextStream& texts);

/// Pieces as lines of a file, and back; CheckpointError.
std::string write_pieces(const Vocabulary& pieces);
Vocabulary read_pieces(std::string_view text, std::string_view file);

/// The lines of a tokenizer's file that come before its vocabulary.
std::string write_header(const TokenizerOptions& options);
/// Takes them off `content`; CheckpointError.
TokenizerOptions read_header(std::string_view& content, std::string_view file);

/// Those of sentencepiece.
std::shared_ptr<const Tokenizer> train_sub_words(const TokenizerOptions& options, const TextStream& texts);
std::shared_ptr<const Tokenizer> load_sub_words(const TokenizerOptions& options, std::string_view model,
                                                std::string_view file);

}  // namespace heed::data::detail
