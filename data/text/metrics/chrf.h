// chrF and chrF++.
#pragma once

#include <array>

#include <heed/data/text/metrics/metric.h>

namespace heed::data {

struct ChrfOptions {
  int word_order = 0;  // runs of up to so many words count beside those of characters; 2 is chrF++
};

/// F-score, with recall twice as important, of runs of 1 to 6 characters without white space, and of words
/// (Popović, WMT 2015 and 2017). Orders that a text is too short for are left out. Of several references the
/// one with the best score counts. Agrees with sacrebleu.
class Chrf final : public TextMetric {
 public:
  /// ConfigError unless word_order is 0 to 6.
  explicit Chrf(const ChrfOptions& options = {});

  /// "chrF", "chrF+" or "chrF++"; "chrF+3" and so on for longer runs of words.
  std::string name() const override;
  double score(const Statistics& sum) const override;

 private:
  Statistics count(std::string_view hypothesis, const References& references) const override;

  size_t word_order_;
};

}  // namespace heed::data
