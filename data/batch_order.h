// In which order a loader takes the samples of an epoch, and where its batches begin.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include <heed/core/base/memory/pooled_vector.h>

namespace heed::data {

/// One of `count` loaders that share the batches of each epoch, such as those of several processes.
struct Shard {
  int64_t index = 0;
  int64_t count = 1;
};

struct LoaderOptions {
  int64_t batch_size = 32;       // samples in a batch; the last of an epoch or window may have fewer
  int64_t max_tokens = 0;        // rows of all samples of a batch together, at most; 0: any number
  bool shuffle = true;           // false: the data set's order, unsorted
  int64_t window_batches = 100;  // batches' worth of shuffled samples that are sorted by length together
  bool prefetch = true;          // prepare the next batch on a thread meanwhile
  uint64_t seed = 42;
  Shard shard = {};
};

/// Where a loader stands: `position` samples of the epoch have been handed out, by all shards together.
struct LoaderState {
  int64_t epoch = 0;
  int64_t position = 0;

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

/// What the order depends on of a sample.
struct SampleSize {
  int64_t rows = 1;                    // that it takes in a batch
  std::array<int64_t, 2> length = {};  // by which a window is sorted: the first, where equal the second
};

/// The order, by numbers alone: a loader (data/loader.h) tells it the sizes.
class BatchOrder {
 public:
  /// Samples [first, second) of a window.
  using Range = std::pair<int64_t, int64_t>;

  /// For `size` samples, of which the largest has most_rows (0: not known). ConfigError if an option is
  /// impossible, there is no sample or max_tokens is too few.
  BatchOrder(int64_t size, const LoaderOptions& options, int64_t most_rows);

  int64_t size() const { return size_; }
  int64_t window_size() const { return window_; }

  /// Batches of an epoch in this shard, if any number of rows fits.
  int64_t count_batches() const;
  /// This shard's part of so many batches.
  int64_t share_of(int64_t batches) const;

  /// CheckpointError if no loader of that many samples can be there.
  void check(const LoaderState& state) const;
  /// Whether a batch of `count` samples and `used` rows has room for one of `rows` more. DataError for one
  /// that no batch has room for.
  bool fits(int64_t count, int64_t used, int64_t rows) const;
  /// The numbers of a window's samples, as they were drawn, until the next call.
  std::span<const uint32_t> draw(int64_t epoch, int64_t window);
  /// Puts a window's samples, of these sizes as drawn, in order by length: `order[i]` is the place of the
  /// i-th among the drawn. `batches` are ranges of that order, as they are handed out.
  void arrange(int64_t epoch, int64_t window, std::span<const SampleSize> sizes, PooledVector<int64_t>& order,
               PooledVector<Range>& batches) const;

 private:
  int64_t size_, max_tokens_;
  int64_t batch_size_ = 0;  // no more than there are samples
  int64_t window_ = 0;      // samples in a window
  uint64_t seed_;
  Shard shard_;
  int64_t drawn_epoch_ = -1;
  PooledVector<uint32_t> permutation_;  // of drawn_epoch_
};

}  // namespace heed::data
