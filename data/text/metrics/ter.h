// Translation edit rate.
#pragma once

#include <heed/data/text/metrics/metric.h>

namespace heed::data {

struct TerOptions {
  bool case_sensitive = false;
};

/// Edits that make the text a reference, for each 100 words of it: words inserted, removed or replaced, and
/// runs of words moved (Snover et al., AMTA 2006). Less is better. Moves are searched for as Tercom does,
/// greedily and within limits. Of several references the one with the fewest edits counts, over their mean
/// length. Where references are empty the score of any text is 100. Agrees with sacrebleu's defaults: words
/// are what white space separates.
class Ter final : public TextMetric {
 public:
  explicit Ter(const TerOptions& options = {}) : options_(options) {}

  std::string name() const override { return "TER"; }
  double score(const Statistics& sum) const override;

 private:
  Statistics count(std::string_view hypothesis, const References& references) const override;

  TerOptions options_;
};

}  // namespace heed::data
