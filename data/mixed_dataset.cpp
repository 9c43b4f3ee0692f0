#include <algorithm>
#include <cmath>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/data/mixed_dataset.h>

namespace heed::data {

MixedDataset::MixedDataset(std::vector<std::shared_ptr<const PairDataset>> parts, double temperature)
    : parts_(std::move(parts)), first_{0} {
  HEED_CHECK(!parts_.empty(), ConfigError, "a mixture needs a data set");
  HEED_CHECK(temperature > 0, ConfigError, "a mixture's temperature must be positive, got ", temperature);
  int64_t samples = 0, largest = 0;
  for (const auto& part : parts_) {
    HEED_CHECK(part->size() > 0, ConfigError, "a data set of a mixture is empty");
    samples += part->size();
    largest = std::max(largest, part->size());
  }
  // Relative to the largest part, whose weight is 1: no power overflows.
  std::vector<double> weights;
  double sum = 0;
  for (const auto& part : parts_) {
    weights.push_back(
        std::pow(static_cast<double>(part->size()) / static_cast<double>(largest), 1 / temperature));
    sum += weights.back();
  }
  double before = 0;
  for (const double weight : weights) {
    before += weight;
    first_.push_back(std::llround(static_cast<double>(samples) * (before / sum)));
  }
  first_.back() = samples;
}

Pair MixedDataset::get(int64_t epoch, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "pair ", index, " is not in 0 to ", size() - 1);
  const auto next = std::upper_bound(first_.begin(), first_.end(), index);
  const auto part = static_cast<size_t>(next - first_.begin() - 1);
  const PairDataset& dataset = *parts_[part];
  const int64_t taken = epoch * share(part) + index - first_[part];
  return dataset.get(taken / dataset.size(), taken % dataset.size());
}

int64_t MixedDataset::vocab() const {
  int64_t most = 0;
  for (const auto& part : parts_) most = std::max(most, part->vocab());
  return most;
}

int64_t MixedDataset::longest_source() const {
  int64_t most = 0;
  for (const auto& part : parts_) most = std::max(most, part->longest_source());
  return most;
}

int64_t MixedDataset::longest_target() const {
  int64_t most = 0;
  for (const auto& part : parts_) most = std::max(most, part->longest_target());
  return most;
}

std::string MixedDataset::fingerprint() const {
  std::string text = "mixture";
  for (size_t i = 0; i < parts_.size(); ++i)
    text += concat(" ", share(i), " of (", parts_[i]->fingerprint(), ")");
  return text;
}

}  // namespace heed::data
