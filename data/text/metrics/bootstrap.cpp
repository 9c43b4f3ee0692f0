#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <heed/core/base/check.h>
#include <heed/core/base/philox.h>
#include <heed/data/text/metrics/bootstrap.h>

namespace heed::data {
namespace {

constexpr uint32_t kStream = 0x626f6f74;  // parts these random numbers from others of the same seed

void check(const BootstrapOptions& options, size_t segments) {
  constexpr int64_t kMaxResamples = 1'000'000;
  HEED_CHECK(options.resamples > 0 && options.resamples <= kMaxResamples, ConfigError,
             "bootstrap: resamples must be 1 to ", kMaxResamples, ", got ", options.resamples);
  HEED_CHECK(options.confidence > 0 && options.confidence < 1, ConfigError,
             "bootstrap: confidence must be between 0 and 1, got ", options.confidence);
  HEED_CHECK(segments > 0, DataError, "bootstrap: there are no segments");
  HEED_CHECK(segments <= std::numeric_limits<uint32_t>::max(), DataError, "bootstrap: ", segments,
             " segments, more than 2^32 - 1");
}

// The segments of one resample.
std::vector<size_t> draw(size_t segments, int64_t resample, uint64_t seed) {
  std::vector<size_t> result;
  result.reserve(segments + 3);
  for (uint32_t block = 0; result.size() < segments; ++block) {
    const Philox4 random = philox(block, static_cast<uint32_t>(resample), kStream, 0,
                                  static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    for (const uint32_t word : random.word) result.push_back((uint64_t{word} * segments) >> 32);
  }
  result.resize(segments);
  return result;
}

double score_of(const TextMetric& metric, std::span<const Statistics> segments,
                const std::vector<size_t>& drawn) {
  Statistics total(segments[0].size());
  for (const size_t segment : drawn)
    for (size_t i = 0; i < total.size(); ++i) total[i] += segments[segment][i];
  return metric.score(total);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Interval interval_of(double score, std::vector<double> resamples, double confidence) {
  std::sort(resamples.begin(), resamples.end());
  const auto count = static_cast<double>(resamples.size());
  // On each side; the middle one or two stay.
  const size_t left_out = std::min(static_cast<size_t>(std::floor(count * (1 - confidence) / 2 + 1e-9)),
                                   (resamples.size() - 1) / 2);
  return {score, mean(resamples), resamples[left_out], resamples[resamples.size() - 1 - left_out]};
}

}  // namespace

Interval bootstrap(const TextMetric& metric, std::span<const Statistics> segments,
                   const BootstrapOptions& options) {
  check(options, segments.size());
  std::vector<double> scores;
  for (int64_t resample = 0; resample < options.resamples; ++resample)
    scores.push_back(score_of(metric, segments, draw(segments.size(), resample, options.seed)));
  return interval_of(metric.score(sum_segments(segments)), std::move(scores), options.confidence);
}

Comparison paired_bootstrap(const TextMetric& metric, std::span<const Statistics> first,
                            std::span<const Statistics> second, const BootstrapOptions& options) {
  HEED_CHECK(first.size() == second.size(), DataError, "bootstrap: ", first.size(), " segments beside ",
             second.size(), "; both systems must have the same ones");
  check(options, first.size());
  std::vector<double> differences, sizes;
  for (int64_t resample = 0; resample < options.resamples; ++resample) {
    const std::vector<size_t> drawn = draw(first.size(), resample, options.seed);
    differences.push_back(score_of(metric, second, drawn) - score_of(metric, first, drawn));
    sizes.push_back(std::abs(differences.back()));
  }
  const double difference = metric.score(sum_segments(second)) - metric.score(sum_segments(first)),
               typical = mean(sizes);
  const auto larger = std::count_if(sizes.begin(), sizes.end(),
                                    [&](double size) { return size - typical > std::abs(difference); });
  return {interval_of(difference, std::move(differences), options.confidence),
          static_cast<double>(larger + 1) / static_cast<double>(options.resamples + 1)};
}

}  // namespace heed::data
