#include <heed/core/base/check.h>
#include <heed/data/text/metrics/metric.h>

namespace heed::data {

Statistics TextMetric::statistics(std::string_view hypothesis, const References& references) const {
  HEED_CHECK(!references.empty(), DataError, name(), ": the segment has no reference");
  return count(hypothesis, references);
}

std::vector<Statistics> TextMetric::statistics(std::span<const std::string> hypotheses,
                                               std::span<const References> references) const {
  HEED_CHECK(hypotheses.size() == references.size(), DataError, name(), ": ", hypotheses.size(),
             " hypotheses, but references of ", references.size(), " segments");
  for (size_t i = 0; i < references.size(); ++i)
    HEED_CHECK(!references[i].empty(), DataError, name(), ": segment ", i, " has no reference");
  std::vector<Statistics> result;
  result.reserve(hypotheses.size());
  for (size_t i = 0; i < hypotheses.size(); ++i) result.push_back(count(hypotheses[i], references[i]));
  return result;
}

double TextMetric::sentence_score(std::string_view hypothesis, const References& references) const {
  return score(statistics(hypothesis, references));
}

double TextMetric::corpus_score(std::span<const std::string> hypotheses,
                                std::span<const References> references) const {
  return score(sum_segments(statistics(hypotheses, references)));
}

Statistics sum_segments(std::span<const Statistics> segments) {
  HEED_CHECK(!segments.empty(), DataError, "text metric: there are no segments");
  Statistics total(segments[0].size());
  for (const Statistics& segment : segments)
    for (size_t i = 0; i < total.size(); ++i) total[i] += segment[i];
  return total;
}

}  // namespace heed::data
