#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/base/divide.h>
#include <heed/core/base/philox.h>
#include <heed/data/loader.h>

namespace heed::data {
namespace {

constexpr uint64_t kKey =
    0x6c6f616465724b65;  // parts the loader's random numbers from others of the same seed

/// Permutes `items` uniformly; `stream` and `epoch` pick the permutation.
template <class T>
void shuffle(PooledVector<T>& items, uint64_t seed, int64_t epoch, uint32_t stream) {
  const uint64_t key = seed ^ kKey;
  for (size_t i = items.size(); i-- > 1;) {
    const Philox4 random =
        philox(static_cast<uint32_t>(i), static_cast<uint32_t>(uint64_t{i} >> 32), stream,
               static_cast<uint32_t>(epoch), static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
    const uint64_t word = uint64_t{random.word[1]} << 32 | random.word[0];
    std::swap(items[i], items[static_cast<size_t>((static_cast<unsigned __int128>(word) * (i + 1)) >> 64)]);
  }
}

}  // namespace

/// Derives the batch that stands at any state.
class PairLoader::Planner {
 public:
  Planner(std::shared_ptr<const PairDataset> dataset, const LoaderOptions& options)
      : dataset_(std::move(dataset)), options_(options) {
    HEED_CHECK(dataset_ && dataset_->size() > 0, ConfigError, "the data set of a loader is empty");
    HEED_CHECK(options.batch_size >= 1, ConfigError, "batch_size is ", options.batch_size,
               "; expected at least 1");
    HEED_CHECK(options.window_batches >= 1, ConfigError, "window_batches is ", options.window_batches,
               "; expected at least 1");
    HEED_CHECK(options.max_tokens >= 0, ConfigError, "max_tokens is ", options.max_tokens,
               "; expected 0 (any number) or more");
    HEED_CHECK(!options.shuffle || size() <= std::numeric_limits<uint32_t>::max(), ConfigError,
               "cannot shuffle ", size(), " pairs, more than 2^32 - 1");
    const int64_t longest = dataset_->longest_source() + (options.marks.source ? 2 : 0) +
                            dataset_->longest_target() + options.marks.end;
    HEED_CHECK(options.max_tokens == 0 || options.max_tokens >= longest, ConfigError, "max_tokens is ",
               options.max_tokens, ", but the longest pair takes ", longest, " rows with its marks");
    const int64_t batch = std::min(options.batch_size, size());
    window_ =
        options.window_batches > size() / batch ? round_up(size(), batch) : options.window_batches * batch;
    batch_size_ = batch;
  }

  /// Another of the same, with nothing loaded. Any thread may call it.
  Planner fresh() const { return Planner(dataset_, options_); }

  void check(LoaderState state) {
    HEED_CHECK(state.epoch >= 0 && state.epoch <= std::numeric_limits<int32_t>::max() &&
                   state.position >= 0 && state.position <= size(),
               CheckpointError, "cannot resume the data at epoch ", state.epoch, ", position ",
               state.position, ": the data set has ", size(), " pairs");
    if (state.position < size() && options_.shuffle) find(state);
  }

  /// The batch at `state`, which moves on; nothing at the end of an epoch.
  std::optional<PairBatch> produce(LoaderState& state) {
    if (state.position == size()) {
      state = {state.epoch + 1, 0};
      return std::nullopt;
    }
    PairBatch batch = options_.shuffle ? shuffled_batch(state) : ordered_batch(state);
    state.position += batch.size();
    return batch;
  }

  int64_t count_batches(int64_t epoch) {
    if (options_.max_tokens == 0) return ceil_divide(size(), batch_size_);
    int64_t count = 0;
    LoaderState state{epoch, 0};
    while (produce(state)) ++count;
    return count;
  }

 private:
  int64_t size() const { return dataset_->size(); }

  int64_t tokens(const Pair& pair) const {
    return source_rows(pair, options_.marks) + target_rows(pair, options_.marks);
  }

  /// Whether a batch of `count` pairs and `used` rows has room for another pair.
  bool fits(int64_t count, int64_t used, const Pair& pair) const {
    return count < batch_size_ && (options_.max_tokens == 0 || used + tokens(pair) <= options_.max_tokens);
  }

  PairBatch ordered_batch(const LoaderState& state) const {
    PooledVector<Pair> pairs;
    PooledVector<int64_t> numbers;
    int64_t used = 0;
    for (int64_t i = state.position; i < size(); ++i) {
      Pair pair = dataset_->get(state.epoch, i);
      if (!fits(i - state.position, used, pair)) break;
      used += tokens(pair);
      pairs.push_back(std::move(pair));
      numbers.push_back(i);
    }
    return pack(pairs, numbers, options_.marks);
  }

  PairBatch shuffled_batch(const LoaderState& state) {
    const auto [begin, end] = find(state);
    const auto count = static_cast<size_t>(end - begin);
    return pack({pairs_.data() + begin, count}, {numbers_.data() + begin, count}, options_.marks);
  }

  /// Where in the window of `state` its batch lies.
  std::pair<int64_t, int64_t> find(const LoaderState& state) {
    load_window(state.epoch, state.position / window_);
    int64_t passed = state.position / window_ * window_;
    for (const auto& batch : batches_) {
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
    if (permuted_ != epoch) {
      permutation_.resize(static_cast<size_t>(size()));
      std::iota(permutation_.begin(), permutation_.end(), 0u);
      shuffle(permutation_, options_.seed, epoch, 0);
      permuted_ = epoch;
    }
    const int64_t begin = window * window_;
    const int64_t end = std::min(begin + window_, size());
    drawn_.clear();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t number = permutation_[static_cast<size_t>(i)];
      drawn_.push_back({dataset_->get(epoch, number), number, i});
    }
    std::sort(drawn_.begin(), drawn_.end());
    pairs_.clear();
    numbers_.clear();
    for (Drawn& item : drawn_) {
      pairs_.push_back(std::move(item.pair));
      numbers_.push_back(item.number);
    }
    cut_batches();
    shuffle(batches_, options_.seed, epoch, static_cast<uint32_t>(window) + 1);
    loaded_ = {epoch, window};
  }

  void cut_batches() {
    batches_.clear();
    int64_t begin = 0;
    int64_t used = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(pairs_.size()); ++i) {
      const Pair& pair = pairs_[static_cast<size_t>(i)];
      if (!fits(i - begin, used, pair)) {
        batches_.emplace_back(begin, i);
        begin = i;
        used = 0;
      }
      used += tokens(pair);
    }
    batches_.emplace_back(begin, static_cast<int64_t>(pairs_.size()));
  }

  /// Pairs of like length come together; those of equal length as they were drawn.
  struct Drawn {
    Pair pair;
    int64_t number, order;

    friend bool operator<(const Drawn& a, const Drawn& b) {
      return std::tuple(a.pair.target.size(), a.pair.source.size(), a.order) <
             std::tuple(b.pair.target.size(), b.pair.source.size(), b.order);
    }
  };

  std::shared_ptr<const PairDataset> dataset_;
  LoaderOptions options_;
  int64_t batch_size_ = 0;  // no more than there are pairs
  int64_t window_ = 0;      // pairs in a window

  int64_t permuted_ = -1;  // the epoch of permutation_
  PooledVector<uint32_t> permutation_;
  std::pair<int64_t, int64_t> loaded_{-1, -1};         // epoch and number of the window held below
  PooledVector<Drawn> drawn_;                          // where the window is sorted
  PooledVector<Pair> pairs_;                           // by rising length
  PooledVector<int64_t> numbers_;                      // of those pairs in the data set
  PooledVector<std::pair<int64_t, int64_t>> batches_;  // ranges of pairs_, in the order they are handed out
};

/// Prepares one batch ahead on a thread of its own.
class PairLoader::Worker {
 public:
  explicit Worker(Planner& planner) : planner_(planner), thread_([this] { run(); }) {}

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// The batch at `state`, which moves on; then the one after it is begun.
  std::optional<PairBatch> take(LoaderState& state) {
    std::unique_lock lock(mutex_);
    if (slot_ == Slot::empty) request(state);
    changed_.wait(lock, [&] { return slot_ == Slot::ready; });
    slot_ = Slot::empty;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    std::optional<PairBatch> batch = std::move(batch_);
    state = state_;
    request(state);
    return batch;
  }

  /// Waits until nothing is under way and forgets what was prepared.
  void drop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slot_ != Slot::requested; });
    slot_ = Slot::empty;
    error_ = nullptr;
  }

 private:
  enum class Slot { empty, requested, ready };

  void request(const LoaderState& state) {
    state_ = state;
    slot_ = Slot::requested;
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || slot_ == Slot::requested; });
      if (stop_) return;
      LoaderState state = state_;
      std::optional<PairBatch> batch;
      std::exception_ptr error;
      lock.unlock();
      try {
        batch = planner_.produce(state);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      state_ = state;
      batch_ = std::move(batch);
      error_ = error;
      slot_ = Slot::ready;
      changed_.notify_all();
    }
  }

  Planner& planner_;  // used by the thread while slot_ is requested, else by nobody
  std::mutex mutex_;
  std::condition_variable changed_;
  Slot slot_ = Slot::empty;
  bool stop_ = false;
  LoaderState state_;
  std::optional<PairBatch> batch_;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

PairLoader::PairLoader(std::shared_ptr<const PairDataset> dataset, const LoaderOptions& options,
                       LoaderState start)
    : planner_(std::make_unique<Planner>(std::move(dataset), options)), state_(start) {
  planner_->check(start);
  if (!options.prefetch) return;
  try {
    worker_ = std::make_unique<Worker>(*planner_);
  } catch (
      const std::system_error&) {  // the system gives no thread: batches are made when they are asked for
  }
}

PairLoader::~PairLoader() = default;
PairLoader::PairLoader(PairLoader&&) noexcept = default;

PairLoader& PairLoader::operator=(PairLoader&& other) noexcept {
  worker_ = std::move(other.worker_);  // first the thread, then what it uses
  planner_ = std::move(other.planner_);
  state_ = other.state_;
  return *this;
}

std::optional<PairBatch> PairLoader::next() {
  if (worker_) return worker_->take(state_);
  LoaderState after = state_;
  std::optional<PairBatch> batch = planner_->produce(after);
  state_ = after;
  return batch;
}

LoaderState PairLoader::state() const { return state_; }

void PairLoader::seek(LoaderState state) {
  if (worker_) worker_->drop();
  planner_->check(state);
  state_ = state;
}

int64_t PairLoader::count_batches(int64_t epoch) const {
  Planner planner = planner_->fresh();  // the thread may be using the windows of the other
  return planner.count_batches(epoch);
}

}  // namespace heed::data
