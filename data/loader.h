// Batches of a data set, in an order that any position can be resumed from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/data/batch_order.h>
#include <heed/data/dataset.h>
#include <heed/data/prefetcher.h>

namespace heed::data {

/// How samples become a batch. With `prefetch` a loader calls it on another thread.
template <class S, class B>
struct Collate {
  /// The batch of these samples, whose numbers in the data set are `numbers`.
  std::function<B(std::span<const S> samples, std::span<const int64_t> numbers)> batch;
  /// Empty: all samples are of one row and one length.
  std::function<SampleSize(const S&)> size = {};
  int64_t most_rows = 0;  // of the largest sample that can occur; 0: not known
};

namespace detail {
template <class S, class B>
class BatchMaker;
}

/// Every epoch holds each sample once. Shuffling permutes the epoch's samples, cuts them into windows, sorts
/// each window by length, so that a batch's samples are of like length, and shuffles the window's batches.
/// All of it follows from (seed, epoch, position): a loader started from a saved state goes on bit by bit as
/// the one that was stopped. Not for use by several threads at once.
///
/// Of N shards each takes every N-th batch, of those that one loader alone would give. All have the same
/// states, whichever made a checkpoint; towards the end of an epoch some may get one batch less.
///
/// B moves and need not be copied.
template <class S, class B>
class Loader {
 public:
  using Sample = S;
  using Batch = B;

  /// ConfigError if an option is impossible, the data set is empty or max_tokens is too few for its longest
  /// sample; CheckpointError if `start` is no state of this loader.
  Loader(std::shared_ptr<const Dataset<S>> dataset, Collate<S, B> collate, const LoaderOptions& options = {},
         LoaderState start = {})
      : maker_(std::make_unique<Maker>(std::move(dataset), std::move(collate), options)), state_(start) {
    maker_->check(start);
    if (!options.prefetch) return;
    try {
      prefetcher_ = std::make_unique<Prefetcher<B>>(
          [maker = maker_.get()](LoaderState& state) { return maker->produce(state); });
    } catch (
        const std::system_error&) {  // the system gives no thread: batches are made when they are asked for
    }
  }
  Loader(Loader&&) noexcept = default;
  Loader& operator=(Loader&& other) noexcept {
    prefetcher_ = std::move(other.prefetcher_);  // first the thread, then what it uses
    maker_ = std::move(other.maker_);
    state_ = other.state_;
    return *this;
  }

  /// The next batch, or nothing at the end of an epoch, after which the next call begins the following one.
  /// What the data set throws comes out here, and leaves the state as it was.
  std::optional<B> next() {
    if (prefetcher_) return prefetcher_->take(state_);
    LoaderState after = state_;
    std::optional<B> batch = maker_->produce(after);
    state_ = after;
    return batch;
  }

  /// What to save; counts the batches that next() returned, not those prepared ahead.
  LoaderState state() const { return state_; }

  /// Goes on from another state, with the checks of the constructor.
  void seek(LoaderState state) {
    if (prefetcher_) prefetcher_->drop();
    maker_->check(state);
    state_ = state;
  }

  /// Batches of an epoch. With max_tokens it goes through the whole epoch's samples to count.
  int64_t count_batches(int64_t epoch) const {
    Maker maker = maker_->fresh();  // the thread may be using the windows of the other
    return maker.count_batches(epoch);
  }

 private:
  using Maker = detail::BatchMaker<S, B>;

  std::unique_ptr<Maker> maker_;
  std::unique_ptr<Prefetcher<B>> prefetcher_;  // null without prefetch
  LoaderState state_;
};

namespace detail {

/// Derives the batch that stands at any state.
template <class S, class B>
class BatchMaker {
 public:
  BatchMaker(std::shared_ptr<const Dataset<S>> dataset, Collate<S, B> collate, const LoaderOptions& options)
      : dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        options_(options),
        order_(dataset_ ? dataset_->size() : 0, options, collate_.most_rows) {}

  /// Another of the same, with nothing loaded. Any thread may call it.
  BatchMaker fresh() const { return BatchMaker(dataset_, collate_, options_); }

  void check(LoaderState state) {
    order_.check(state);
    if (state.position < size() && options_.shuffle) find(state);
  }

  /// The batch at `state`, which moves on past the batches of all shards; nothing at the end of an epoch.
  std::optional<B> produce(LoaderState& state) {
    std::optional<B> own;
    for (int64_t i = 0; i < options_.shard.count && state.position < size(); ++i) {
      const Samples samples = options_.shuffle ? shuffled(state) : ordered(state);
      if (i == options_.shard.index) own = collate_.batch(samples.samples, samples.numbers);
      state.position += std::ssize(samples.numbers);
    }
    if (!own) state = {state.epoch + 1, 0};
    return own;
  }

  int64_t count_batches(int64_t epoch) {
    if (options_.max_tokens == 0) return order_.count_batches();
    int64_t count = 0;  // of all shards
    if (options_.shuffle) {
      for (int64_t window = 0; window * order_.window_size() < size(); ++window) {
        load_window(epoch, window);
        count += std::ssize(batches_);
      }
    } else {
      for (LoaderState state{epoch, 0}; state.position < size(); ++count)
        state.position += std::ssize(ordered(state).numbers);
    }
    return order_.share_of(count);
  }

 private:
  struct Samples {
    std::span<const S> samples;
    std::span<const int64_t> numbers;
  };

  int64_t size() const { return order_.size(); }
  SampleSize size_of(const S& sample) const { return collate_.size ? collate_.size(sample) : SampleSize{}; }

  Samples ordered(const LoaderState& state) {
    samples_.clear();
    numbers_.clear();
    int64_t used = 0;
    for (int64_t i = state.position; i < size(); ++i) {
      S sample = dataset_->get(state.epoch, i);
      const int64_t rows = size_of(sample).rows;
      if (!order_.fits(i - state.position, used, rows)) break;
      used += rows;
      samples_.push_back(std::move(sample));
      numbers_.push_back(i);
    }
    return {samples_, numbers_};
  }

  Samples shuffled(const LoaderState& state) {
    const BatchOrder::Range range = find(state);
    const auto first = static_cast<size_t>(range.first), count = static_cast<size_t>(range.second) - first;
    return {std::span<const S>(samples_).subspan(first, count),
            std::span<const int64_t>(numbers_).subspan(first, count)};
  }

  /// Where in the window of `state` its batch lies.
  BatchOrder::Range find(const LoaderState& state) {
    const int64_t window = state.position / order_.window_size();
    load_window(state.epoch, window);
    int64_t passed = window * order_.window_size();
    for (const BatchOrder::Range& batch : batches_) {
      if (passed == state.position) return batch;
      passed += batch.second - batch.first;
    }
    throw CheckpointError(
        concat("cannot resume the data at epoch ", state.epoch, ", position ", state.position,
               ": no batch begins there; were seed, batch_size, max_tokens or the data changed?"));
  }

  void load_window(int64_t epoch, int64_t window) {
    if (loaded_ == std::pair(epoch, window)) return;
    loaded_ = {-1, -1};  // in case of an exception
    const std::span<const uint32_t> drawn = order_.draw(epoch, window);
    drawn_.clear();
    sizes_.clear();
    for (const uint32_t number : drawn) {
      drawn_.push_back(dataset_->get(epoch, number));
      sizes_.push_back(size_of(drawn_.back()));
    }
    order_.arrange(epoch, window, sizes_, places_, batches_);
    samples_.clear();
    numbers_.clear();
    for (const int64_t place : places_) {
      samples_.push_back(std::move(drawn_[static_cast<size_t>(place)]));
      numbers_.push_back(drawn[static_cast<size_t>(place)]);
    }
    loaded_ = {epoch, window};
  }

  std::shared_ptr<const Dataset<S>> dataset_;
  Collate<S, B> collate_;
  LoaderOptions options_;
  BatchOrder order_;
  std::pair<int64_t, int64_t> loaded_{-1, -1};  // epoch and number of the window held below
  PooledVector<S> drawn_;                       // a window's, as they were drawn
  PooledVector<SampleSize> sizes_;              // of those
  PooledVector<int64_t> places_;                // of the sorted ones among those
  PooledVector<S> samples_;                     // by rising length
  PooledVector<int64_t> numbers_;               // of those samples in the data set
  PooledVector<BatchOrder::Range> batches_;     // ranges of samples_, in the order they are handed out
};

}  // namespace detail
}  // namespace heed::data
