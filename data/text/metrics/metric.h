// How close texts are to their references: what all metrics share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::data {

/// What a metric counts in one segment (a sentence, a word to pronounce). The sums over segments are those of
/// a corpus, which is why any resampling of segments can be scored (bootstrap.h).
using Statistics = std::vector<double>;

/// The references of one segment: any of them is right.
using References = std::vector<std::string>;

/// Texts are UTF-8; each byte that is not part of it counts as a character. White space is what Unicode and
/// Python call so. All functions may be called by several threads.
class TextMetric {
 public:
  virtual ~TextMetric() = default;

  /// As tables show it, such as "BLEU" or "chrF++".
  virtual std::string name() const = 0;
  /// In percent, of summed statistics.
  virtual double score(const Statistics& sum) const = 0;

  /// Of one segment. DataError if it has no reference.
  Statistics statistics(std::string_view hypothesis, const References& references) const;
  /// Of each segment. DataError where the two differ in number, or with the number of a segment without
  /// reference.
  std::vector<Statistics> statistics(std::span<const std::string> hypotheses,
                                     std::span<const References> references) const;

  double sentence_score(std::string_view hypothesis, const References& references) const;
  /// Of all segments together, which is no mean of theirs. DataError as above, and if there are none.
  double corpus_score(std::span<const std::string> hypotheses, std::span<const References> references) const;

 protected:
  /// References are not empty.
  virtual Statistics count(std::string_view hypothesis, const References& references) const = 0;
};

/// The sum over segments, all of one metric. DataError if there are none.
Statistics sum_segments(std::span<const Statistics> segments);

}  // namespace heed::data
