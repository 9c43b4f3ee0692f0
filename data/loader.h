// Batches of a data set, in an order that any position can be resumed from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <heed/data/pair_batch.h>
#include <heed/data/pair_dataset.h>

namespace heed::data {

struct LoaderOptions {
  int64_t batch_size = 32;       // pairs in a batch; the last of an epoch or window may have fewer
  int64_t max_tokens = 0;        // rows of source and target together in a batch, at most; 0: any number
  bool shuffle = true;           // false: the data set's order, unsorted
  int64_t window_batches = 100;  // batches' worth of shuffled pairs that are sorted by length together
  Marks marks = {};              // added to each pair
  bool prefetch = true;          // prepare the next batch on a thread meanwhile
  uint64_t seed = 42;
};

/// Where a loader stands: `position` pairs of the epoch have been handed out.
struct LoaderState {
  int64_t epoch = 0;
  int64_t position = 0;

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

/// Every epoch holds each pair once. Shuffling permutes the epoch's pairs, cuts them into windows, sorts each
/// window by length, so that a batch's pairs are of like length, and shuffles the window's batches. All of it
/// follows from (seed, epoch, position): a loader started from a saved state goes on bit by bit as the one
/// that was stopped. Not for use by several threads at once.
class PairLoader {
 public:
  /// ConfigError if an option is impossible, the data set is empty or max_tokens is too few for its longest
  /// pair; CheckpointError if `start` is no state of this loader.
  PairLoader(std::shared_ptr<const PairDataset> dataset, const LoaderOptions& options,
             LoaderState start = {});
  ~PairLoader();
  PairLoader(PairLoader&&) noexcept;
  PairLoader& operator=(PairLoader&&) noexcept;

  /// The next batch, or nothing at the end of an epoch, after which the next call begins the following one.
  /// What the data set throws comes out here, and leaves the state as it was.
  std::optional<PairBatch> next();

  /// What to save; counts the batches that next() returned, not those prepared ahead.
  LoaderState state() const;

  /// Goes on from another state, with the checks of the constructor.
  void seek(LoaderState state);

  /// Batches of an epoch. With max_tokens it goes through the whole epoch's pairs to count.
  int64_t count_batches(int64_t epoch) const;

 private:
  class Planner;
  class Worker;

  std::unique_ptr<Planner> planner_;
  std::unique_ptr<Worker> worker_;  // null without prefetch
  LoaderState state_;
};

}  // namespace heed::data
