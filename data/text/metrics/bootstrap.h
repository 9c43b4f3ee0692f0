// How sure a score is: confidence intervals by resampling segments.
#pragma once

#include <cstdint>

#include <heed/data/text/metrics/metric.h>

namespace heed::data {

/// Results depend on nothing else than these and the statistics.
struct BootstrapOptions {
  int64_t resamples = 1000;
  double confidence = 0.95;
  uint64_t seed = 42;
};

struct Interval {
  double score;      // of the segments themselves
  double mean;       // of the resamples
  double low, high;  // between which the middle `confidence` of the resamples lies
};

/// Scores of corpora of as many segments, drawn from these with replacement (Efron; for translation, Koehn,
/// EMNLP 2004). ConfigError for options out of range, DataError if there are no segments.
Interval bootstrap(const TextMetric& metric, std::span<const Statistics> segments,
                   const BootstrapOptions& options = {});

struct Comparison {
  Interval difference;  // of scores, second less first
  /// How likely a difference as large is by chance: the share of resamples in which it is larger than it is
  /// in the mean by more than the whole. As sacrebleu counts it: (such resamples + 1) / (resamples + 1).
  double p_value;
};

/// Two systems on the same segments, which are drawn alike for both. ConfigError and DataError as above, and
/// DataError where their numbers differ.
Comparison paired_bootstrap(const TextMetric& metric, std::span<const Statistics> first,
                            std::span<const Statistics> second, const BootstrapOptions& options = {});

}  // namespace heed::data
