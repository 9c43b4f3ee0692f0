#include <algorithm>
#include <limits>
#include <numeric>

#include <heed/core/base/check.h>
#include <heed/core/base/int_math.h>
#include <heed/core/base/philox.h>
#include <heed/data/batch_order.h>

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

BatchOrder::BatchOrder(int64_t size, const LoaderOptions& options, int64_t most_rows)
    : size_(size), max_tokens_(options.max_tokens), seed_(options.seed), shard_(options.shard) {
  HEED_CHECK(size > 0, ConfigError, "the data set of a loader is empty");
  HEED_CHECK(options.batch_size >= 1, ConfigError, "batch_size is ", options.batch_size,
             "; expected at least 1");
  HEED_CHECK(options.window_batches >= 1, ConfigError, "window_batches is ", options.window_batches,
             "; expected at least 1");
  HEED_CHECK(options.max_tokens >= 0, ConfigError, "max_tokens is ", options.max_tokens,
             "; expected 0 (any number) or more");
  HEED_CHECK(!options.shuffle || size <= std::numeric_limits<uint32_t>::max(), ConfigError, "cannot shuffle ",
             size, " samples, more than 2^32 - 1");
  HEED_CHECK(options.max_tokens == 0 || options.max_tokens >= most_rows, ConfigError, "max_tokens is ",
             options.max_tokens, ", but the longest sample takes ", most_rows, " rows");
  HEED_CHECK(shard_.index >= 0 && shard_.index < shard_.count, ConfigError, "there is no shard ",
             shard_.index, " of ", shard_.count);
  batch_size_ = std::min(options.batch_size, size);
  window_ = options.window_batches > size / batch_size_ ? round_up(size, batch_size_)
                                                        : options.window_batches * batch_size_;
}

int64_t BatchOrder::count_batches() const { return share_of(ceil_divide(size_, batch_size_)); }

int64_t BatchOrder::share_of(int64_t batches) const {
  return batches / shard_.count + (shard_.index < batches % shard_.count ? 1 : 0);
}

void BatchOrder::check(const LoaderState& state) const {
  HEED_CHECK(state.epoch >= 0 && state.epoch <= std::numeric_limits<int32_t>::max() && state.position >= 0 &&
                 state.position <= size_,
             CheckpointError, "cannot resume the data at epoch ", state.epoch, ", position ", state.position,
             ": the data set has ", size_, " samples");
}

bool BatchOrder::fits(int64_t count, int64_t used, int64_t rows) const {
  if (max_tokens_ == 0) return count < batch_size_;
  HEED_CHECK(rows <= max_tokens_, DataError, "a sample of ", rows,
             " rows has no room in batches of max_tokens ", max_tokens_);
  return count < batch_size_ && used + rows <= max_tokens_;
}

std::span<const uint32_t> BatchOrder::draw(int64_t epoch, int64_t window) {
  if (drawn_epoch_ != epoch) {
    permutation_.resize(static_cast<size_t>(size_));
    std::iota(permutation_.begin(), permutation_.end(), 0u);
    shuffle(permutation_, seed_, epoch, 0);
    drawn_epoch_ = epoch;
  }
  const int64_t begin = window * window_;
  return std::span(permutation_)
      .subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(window_, size_ - begin)));
}

void BatchOrder::arrange(int64_t epoch, int64_t window, std::span<const SampleSize> sizes,
                         PooledVector<int64_t>& order, PooledVector<Range>& batches) const {
  order.resize(sizes.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) {  // those of equal length as they were drawn
              const auto &x = sizes[static_cast<size_t>(a)].length, &y = sizes[static_cast<size_t>(b)].length;
              return x < y || (x == y && a < b);
            });
  batches.clear();
  int64_t begin = 0;
  int64_t used = 0;
  for (int64_t i = 0; i < std::ssize(order); ++i) {
    const int64_t rows = sizes[static_cast<size_t>(order[static_cast<size_t>(i)])].rows;
    if (!fits(i - begin, used, rows)) {
      batches.emplace_back(begin, i);
      begin = i;
      used = 0;
    }
    used += rows;
  }
  batches.emplace_back(begin, std::ssize(order));
  shuffle(batches, seed_, epoch, static_cast<uint32_t>(window) + 1);
}

}  // namespace heed::data
