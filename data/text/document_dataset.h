// Documents as a data set of sequences, from which a language model learns to continue them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/dataset.h>
#include <heed/data/pair_batch.h>
#include <heed/data/text/tokenizer.h>

namespace heed::data {

struct DocumentOptions {
  int64_t context = 256;   // tokens of a sequence, at most
  int64_t start = kStart;  // the token that begins a document; -1: none
  int64_t end = kEnd;      // the token that ends one; -1: none
};

/// All documents, tokenized once, each with its marks and cut into sequences of at most `context` tokens:
/// longer documents in each epoch at other places, so that a model does not learn where they are cut. A
/// sample has one id more than its sequence has tokens: token i is ids[i], and what follows it ids[i + 1].
/// Special tokens that a document spells out are plain text.
class DocumentDataset final : public Dataset<TokenIds> {
 public:
  /// DataError where a document is not UTF-8; ConfigError for a context of no tokens.
  DocumentDataset(std::span<const std::string> documents, const Tokenizer& tokenizer,
                  const DocumentOptions& options = {});

  int64_t size() const override { return static_cast<int64_t>(document_of_.size()); }
  TokenIds get(int64_t epoch, int64_t index) const override;
  std::string fingerprint() const override { return fingerprint_; }

  /// Code points of all documents.
  int64_t characters() const { return characters_; }
  /// Tokens that are predicted: all but the first of each document.
  int64_t tokens() const { return tokens_; }
  /// Tokens of the longest sequence.
  int64_t longest() const { return longest_; }

 private:
  struct Document {
    int64_t first, tokens;        // ids [first, first + tokens]
    int64_t first_piece, pieces;  // numbers of its samples
    int64_t least, most;          // tokens of its first sequence
  };

  void add(int64_t first, int64_t tokens);

  int64_t context_;
  std::vector<int32_t> ids_;  // of all documents
  std::vector<Document> documents_;
  std::vector<int32_t> document_of_;  // of each sample
  int64_t characters_ = 0, tokens_ = 0, longest_ = 0;
  std::string fingerprint_;
};

}  // namespace heed::data
