#include <algorithm>
#include <numeric>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/attention/key_value_cache.h>

namespace heed::nn {
namespace {

constexpr int64_t kFirstCapacity = 32;

}  // namespace

KeyValueCache::KeyValueCache(int64_t layers, int64_t sequences, int64_t columns, const TensorOptions& options)
    : layers_(static_cast<size_t>(std::max<int64_t>(layers, 0))),
      lengths_(static_cast<size_t>(std::max<int64_t>(sequences, 0)), 0),
      columns_(columns),
      options_(options) {
  HEED_CHECK(layers >= 0 && sequences >= 0 && columns > 0, ConfigError, "KeyValueCache: ", layers,
             " layers, ", sequences, " sequences, ", columns, " columns");
  grow(kFirstCapacity);
}

int64_t KeyValueCache::length(int64_t sequence) const {
  HEED_CHECK(sequence >= 0 && sequence < sequences(), IndexError, "KeyValueCache: there is no sequence ",
             sequence, " of ", sequences());
  return lengths_[static_cast<size_t>(sequence)];
}

int64_t KeyValueCache::max_length_with(const Segments& added) const {
  int64_t longest = 0;
  for (int64_t i = 0; i < added.count(); ++i) longest = std::max(longest, length(i) + added.query_length(i));
  return longest;
}

void KeyValueCache::grow(int64_t capacity) {
  for (Tensor& layer : layers_) {
    // Rows beyond a length are never read: attention ends at the segment.
    const Tensor larger = empty({sequences() * capacity, columns_}, options_);
    const auto past = [&](const Tensor& rows, int64_t rows_each) {
      return rows.view({sequences(), rows_each, columns_}).slice(1, 0, longest_);
    };
    if (longest_ > 0) past(larger, capacity).copy_(past(layer, capacity_));
    layer = larger;
  }
  capacity_ = capacity;
}

Tensor KeyValueCache::positions(const Segments& added, int64_t rows) const {
  const Tensor positions = zeros({rows}, {DType::i64, kCpu});
  for (int64_t i = 0; i < added.count(); ++i) {
    int64_t* const first = positions.data<int64_t>() + added.query_first(i);
    std::iota(first, first + added.query_length(i), length(i));
  }
  return positions;
}

void KeyValueCache::extend(const Segments& added) {
  HEED_CHECK(!grad_enabled(), StateError, "KeyValueCache: hold a NoGrad while decoding");
  HEED_CHECK(added.count() == sequences(), ShapeError, "KeyValueCache: rows of ", added.count(),
             " sequences for a cache of ", sequences());
  PooledVector<int32_t> lengths;
  lengths.reserve(lengths_.size());
  step_ = true;
  int64_t longest = 0;
  for (int64_t i = 0; i < sequences(); ++i) {
    const int64_t before = lengths_[static_cast<size_t>(i)], length = before + added.query_length(i);
    step_ &= before == longest_ && added.query_length(i) == 1 && added.query_first(i) == i;
    longest = std::max(longest, length);
    lengths.push_back(static_cast<int32_t>(length));
  }
  if (longest > capacity_) grow(std::max(longest, 2 * capacity_));
  segments_ = step_ ? Segments::dense(sequences(), 1, capacity_, lengths) : all_rows(added, lengths);
  first_ = std::exchange(lengths_, PooledVector<int64_t>(lengths.begin(), lengths.end()));
  longest_ = longest;
  added_ = added;
}

// The added rows as queries, and as keys all that the sequences then have.
Segments KeyValueCache::all_rows(const Segments& added, std::span<const int32_t> lengths) const {
  PooledVector<int64_t> query_first, key_first;
  PooledVector<int32_t> query_length;
  for (int64_t i = 0; i < sequences(); ++i) {
    query_first.push_back(added.query_first(i));
    query_length.push_back(added.query_length(i));
    key_first.push_back(i * capacity_);
  }
  return Segments(query_first, query_length, key_first, lengths);
}

Tensor KeyValueCache::append(int64_t layer, const Tensor& key_value) {
  HEED_CHECK(layer >= 0 && layer < static_cast<int64_t>(layers_.size()), IndexError,
             "KeyValueCache: there is no layer ", layer, " of ", layers_.size());
  HEED_CHECK(
      key_value.rank() == 2 && key_value.size(0) >= added_.query_rows_end() && key_value.size(1) == columns_,
      ShapeError, "KeyValueCache: keys and values are ", key_value.shape(), ", expected [",
      added_.query_rows_end(), ", ", columns_, "]");
  const Tensor& all = layers_[static_cast<size_t>(layer)];
  if (step_ && longest_ > 0) {
    // The last row of each sequence.
    const Tensor last = all.slice(0, longest_ - 1, sequences() * capacity_, capacity_);
    last.copy_(key_value.size(0) == sequences() ? key_value : key_value.slice(0, 0, sequences()));
  } else {
    for (int64_t i = 0; i < sequences(); ++i) {
      const int64_t count = added_.query_length(i), from = added_.query_first(i),
                    to = i * capacity_ + first_[static_cast<size_t>(i)];
      if (count > 0) all.slice(0, to, to + count).copy_(key_value.slice(0, from, from + count));
    }
  }
  return all;
}

void KeyValueCache::select(std::span<const int64_t> parents) {
  bool same = static_cast<int64_t>(parents.size()) == sequences();
  PooledVector<int64_t> lengths;
  for (size_t i = 0; i < parents.size(); ++i) {
    HEED_CHECK(parents[i] >= 0 && parents[i] < sequences(), IndexError, "KeyValueCache::select: parent ",
               parents[i], " is not in [0, ", sequences(), ")");
    same &= parents[i] == static_cast<int64_t>(i);
    lengths.push_back(lengths_[static_cast<size_t>(parents[i])]);
  }
  if (same) return;
  const Tensor index = tensor(parents, {static_cast<int64_t>(parents.size())}, options_.device);
  const Shape by_sequence{sequences(), capacity_, columns_}, by_row{-1, columns_};
  for (Tensor& layer : layers_) layer = index_select(layer.view(by_sequence), index).view(by_row);
  lengths_ = std::move(lengths);
  longest_ = lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

}  // namespace heed::nn
