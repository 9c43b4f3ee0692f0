// Error rates of words, phonemes and characters, and exact matches.
#pragma once

#include <heed/data/text/metrics/metric.h>

namespace heed::data {

/// words: what white space separates, be it words or phonemes; characters: code points, spaces within
/// included.
enum class ErrorUnit { words, characters };

struct ErrorRateOptions {
  ErrorUnit unit = ErrorUnit::words;
};

/// Units to insert, remove or replace for each 100 of the reference: the rate of word, phoneme or character
/// errors. Less is better. Of several references the one with the fewest errors counts, of those the longest.
/// Where references are empty the score of any text is 100. Agrees with jiwer.
class ErrorRate final : public TextMetric {
 public:
  explicit ErrorRate(const ErrorRateOptions& options = {}) : options_(options) {}

  /// "WER" or "CER".
  std::string name() const override;
  double score(const Statistics& sum) const override;

 private:
  Statistics count(std::string_view hypothesis, const References& references) const override;

  ErrorRateOptions options_;
};

/// Percent of the texts that have the words of a reference; how much white space parts them does not matter.
/// Of pronunciations, 100 less the rate of words that are wrong.
class ExactMatch final : public TextMetric {
 public:
  std::string name() const override { return "exact match"; }
  double score(const Statistics& sum) const override;

 private:
  Statistics count(std::string_view hypothesis, const References& references) const override;
};

}  // namespace heed::data
