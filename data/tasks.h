// Synthetic tasks that a sequence-to-sequence model can learn exactly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/pair_dataset.h>

namespace heed::data {

/// What the target is, for a source of symbols drawn uniformly from 3 to vocab - 1:
/// copy_reverse: the source followed by its reverse; copy: the source; reverse: its reverse; sort: its
/// symbols in ascending order, repeated ones included. add: the source is two decimal numbers with a plus
/// sign between them and the target is their sum. Digit d is symbol 3 + d, plus is 13, the first digit of a
/// number is not 0 unless it is the only one.
enum class Task { copy_reverse, copy, reverse, sort, add };

const char* name(Task task);
/// The inverse of name(); ConfigError listing the tasks otherwise.
Task parse_task(std::string_view text);

struct TaskOptions {
  Task task = Task::copy_reverse;
  int64_t min_length = 3;  // symbols of a source, or digits of each number to add; lengths are uniform
  int64_t max_length = 10;
  int64_t vocab = 20;  // symbols 0 to vocab - 1 exist, 3 of them reserved
  int64_t pairs = 10'000;
  int64_t valid_pairs = 1'000;
  bool fresh = false;  // new training pairs in every epoch
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
  bool belongs(const Symbols& source) const;
  void choose_validation_draws();
  Symbols training_source(int64_t epoch, int64_t index) const;

  TaskOptions options_;
  Split split_;
  std::vector<int64_t> draws_;  // validation: which draw gave pair i
};

/// The target that belongs to a source. DataError if it is no source of the task (add: not two numbers and a
/// plus).
Symbols solve(Task task, const Symbols& source);

}  // namespace heed::data
