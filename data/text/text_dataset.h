// Pairs of texts as a data set of symbols.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <heed/data/pair_dataset.h>
#include <heed/data/text/text_pairs.h>
#include <heed/data/text/tokenizer.h>

namespace heed::data {

namespace detail {
struct EncodedTexts;
}

/// Pairs, tokenized once.
class TextDataset final : public PairDataset {
 public:
  /// Pairs of which a side has more than max_tokens (0: any number) are left out. DataError where a text is
  /// not UTF-8.
  TextDataset(const TextPairs& pairs, const Tokenizer& source, const Tokenizer& target,
              int64_t max_tokens = 0);
  TextDataset(TextDataset&&) noexcept;
  ~TextDataset() override;

  int64_t size() const override;
  Pair get(int64_t epoch, int64_t index) const override;
  int64_t vocab() const override;
  int64_t longest_source() const override;
  int64_t longest_target() const override;
  std::string fingerprint() const override;

  /// Pairs that were left out.
  int64_t too_long() const;

 private:
  friend class TextDatasetBuilder;
  explicit TextDataset(std::unique_ptr<detail::EncodedTexts> texts);

  std::unique_ptr<detail::EncodedTexts> texts_;
};

/// Makes a TextDataset of pairs that come one after another. Some thousands are tokenized together, by all
/// threads.
class TextDatasetBuilder {
 public:
  /// The tokenizers outlive it. `folder`: where a file without a name holds the ids, in 4 bytes each, and 16
  /// bytes of each pair, so that they need no memory; empty: memory holds them. The data set is the same.
  /// IoError where there can be no such file.
  TextDatasetBuilder(const Tokenizer& source, const Tokenizer& target, int64_t max_tokens = 0,
                     const std::string& folder = {});
  ~TextDatasetBuilder();

  /// DataError where a text is not UTF-8, perhaps in a later call; IoError where the file's disk is full.
  void add(std::string source, std::string target);
  /// The data set of all that was added; called once, at the end. Errors as add()'s.
  TextDataset finish();

 private:
  void encode();

  const Tokenizer &source_, &target_;
  int64_t max_tokens_;
  TextPairs waiting_;
  std::unique_ptr<detail::EncodedTexts> texts_;
};

}  // namespace heed::data
