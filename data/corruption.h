// Texts with parts taken away that a model learns to restore: pre-training, for which no labels are needed.
// Each epoch takes other parts away; all of it follows from (seed, epoch, sample).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <heed/data/loader.h>
#include <heed/data/pair_dataset.h>
#include <heed/data/sample_draw.h>

namespace heed::data {

/// The label of a token that nothing is asked about, as cross_entropy ignores it.
inline constexpr int64_t kNoLabel = -100;

/// Masked-language training, as BERT's (Devlin et al., arXiv 1810.04805): of the chosen tokens most become
/// the mask, some any token, and some stay.
struct MaskingOptions {
  double rate = 0.15;                 // chosen, of the tokens that are not special; at least one
  double masked = 0.8, random = 0.1;  // of the chosen ones; the rest stays as it is
  int64_t mask = 0;                   // the mask's id
  int64_t vocabulary = 0;             // random tokens are below
  std::vector<int64_t> special = {};  // neither chosen nor drawn; the mask is one without being named
};

struct MaskedText {
  TokenIds ids;
  TokenIds labels;  // of each id what it was if it was chosen, else kNoLabel
};

/// Chosen are round(rate · count) tokens, any of them as likely. A text of special tokens alone stays.
/// ConfigError for shares that are none, a mask outside the vocabulary, or one of special tokens alone.
MaskedText mask_tokens(const TokenIds& text, const MaskingOptions& options, SampleDraw& draw);

/// Span corruption, as T5's (Raffel et al., arXiv 1910.10683): each span becomes a sentinel in the source;
/// the target is the sentinels, each before what it stands for.
struct SpanOptions {
  double rate = 0.15;                   // tokens in spans
  double mean_span = 3;                 // at least 1
  std::vector<int64_t> sentinels = {};  // one for each span of a text
};

/// round(rate · length) tokens, at least 1 and at most length - 1, in round(tokens / mean_span) spans, at
/// least 1, all lengths of spans and of what lies between as likely; the first token is in no span. A text of
/// one token has no span, and an empty target. ConfigError for numbers out of range or too few sentinels.
Pair corrupt_spans(const TokenIds& text, const SpanOptions& options, SampleDraw& draw);

/// Text infilling, as BART's (Lewis et al., arXiv 1910.13461): each span becomes one mask, one of length 0 is
/// a mask between two tokens; the target is the whole text.
struct InfillingOptions {
  double rate = 0.3;     // tokens in spans
  double mean_span = 3;  // of the Poisson distribution of lengths; above 0, at most 100
  int64_t mask = 0;
};

/// Spans are drawn until they have round(rate · length) tokens, the last cut to fit; at most as many of
/// length 0 as the text has tokens. Any order of spans and remaining tokens is as likely. ConfigError for
/// numbers out of range.
Pair infill(const TokenIds& text, const InfillingOptions& options, SampleDraw& draw);

using TextSource = std::shared_ptr<const Dataset<TokenIds>>;

/// Masked texts of a data set of texts.
class MaskedDataset final : public Dataset<MaskedText> {
 public:
  /// ConfigError as of mask_tokens().
  MaskedDataset(TextSource texts, MaskingOptions options, uint64_t seed);
  int64_t size() const override { return texts_->size(); }
  MaskedText get(int64_t epoch, int64_t index) const override;
  std::string fingerprint() const override;

 private:
  TextSource texts_;
  MaskingOptions options_;
  uint64_t seed_;
};

/// A batch of masked texts, packed.
struct MaskedBatch {
  Sequences texts;
  TokenIds ids, labels;           // [texts.rows]
  PooledVector<int64_t> samples;  // [texts]: which of the data set each one is

  int64_t size() const { return std::ssize(texts.length); }
  int64_t labeled() const;  // tokens that are asked about
};

/// How a Loader makes batches of masked texts. most_rows: tokens of the longest; 0: not known.
Collate<MaskedText, MaskedBatch> masked_collate(int64_t most_rows = 0);

/// Corrupted texts and what restores them, for a PairLoader. All texts are looked at once, for the longest.
class SpanCorruption final : public PairDataset {
 public:
  /// `vocabulary`: one more than the largest id, sentinels included. ConfigError as of corrupt_spans(), for
  /// any of the texts.
  SpanCorruption(TextSource texts, SpanOptions options, int64_t vocabulary, uint64_t seed);
  int64_t size() const override { return texts_->size(); }
  Pair get(int64_t epoch, int64_t index) const override;
  int64_t vocab() const override { return vocabulary_; }
  int64_t longest_source() const override { return longest_source_; }
  int64_t longest_target() const override { return longest_target_; }
  std::string fingerprint() const override;

 private:
  TextSource texts_;
  SpanOptions options_;
  int64_t vocabulary_;
  uint64_t seed_;
  int64_t longest_source_ = 0, longest_target_ = 0;
};

class TextInfilling final : public PairDataset {
 public:
  /// `vocabulary`: one more than the largest id, the mask included. ConfigError as of infill().
  TextInfilling(TextSource texts, InfillingOptions options, int64_t vocabulary, uint64_t seed);
  int64_t size() const override { return texts_->size(); }
  Pair get(int64_t epoch, int64_t index) const override;
  int64_t vocab() const override { return vocabulary_; }
  int64_t longest_source() const override { return 2 * longest_; }
  int64_t longest_target() const override { return longest_; }
  std::string fingerprint() const override;

 private:
  TextSource texts_;
  InfillingOptions options_;
  int64_t vocabulary_;
  uint64_t seed_;
  int64_t longest_ = 0;
};

}  // namespace heed::data
