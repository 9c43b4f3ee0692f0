// Pairs drawn for a synthetic task, which a sequence-to-sequence model can learn exactly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <heed/data/pair_dataset.h>
#include <heed/data/task.h>

namespace heed::data {

struct TaskOptions {
  Task task = "copy_reverse";
  int64_t min_length = 3;  // of a source, as the task counts it; lengths are uniform
  int64_t max_length = 10;
  int64_t vocab = 20;  // symbols 0 to vocab - 1 exist, 3 of them reserved
  int64_t pairs = 10'000;
  int64_t valid_pairs = 1'000;
  bool fresh = false;             // new training pairs in every epoch
  bool last_digit_first = false;  // of the numbers in sources and targets
  uint64_t seed = 42;
};

enum class Split { train, valid };

/// The pairs of one split. Pair i is drawn by a counter-based generator from (seed, epoch if fresh, i) alone.
///
/// A source belongs to validation if a fixed hash of it says so (one in eight does), whatever the seed, and
/// to training otherwise: so no validation source ever occurs in training. Validation sources differ from
/// each other. Without validation pairs, training has all sources.
class TaskDataset final : public PairDataset {
 public:
  /// ConfigError if an option is impossible, or there are too few different sources for the split.
  TaskDataset(const TaskOptions& options, Split split);

  int64_t size() const override { return split_ == Split::train ? options_.pairs : options_.valid_pairs; }
  Pair get(int64_t epoch, int64_t index) const override;
  int64_t vocab() const override { return options_.vocab; }
  int64_t longest_source() const override;
  int64_t longest_target() const override;
  std::string fingerprint() const override;

 private:
  bool belongs(const TokenIds& source) const;
  void choose_validation_draws();
  TokenIds training_source(int64_t epoch, int64_t index) const;

  TaskOptions options_;
  Split split_;
  std::vector<int64_t> draws_;  // validation: which draw gave pair i
};

}  // namespace heed::data
