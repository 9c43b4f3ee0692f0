#include <algorithm>
#include <numeric>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/index_put.h>
#include <heed/core/ops.h>
#include <heed/kernels/embedding.h>
#include <heed/nn/attention/key_value_cache.h>

namespace heed::nn {
namespace {

constexpr int64_t kFirstCapacity = 8;  // small, since in a search much is dropped before it grows long

Tensor row_numbers(std::span<const int64_t> rows, Device device) {
  return tensor(rows, {std::ssize(rows)}, device);
}

PooledVector<int64_t> first_numbers(int64_t count) {
  PooledVector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t layers, int64_t sequences, int64_t columns, const TensorOptions& options)
    : layers_(static_cast<size_t>(std::max<int64_t>(layers, 0))),
      lengths_(static_cast<size_t>(std::max<int64_t>(sequences, 0)), 0),
      columns_(columns),
      options_(options) {
  HEED_CHECK(layers >= 0 && sequences >= 0 && columns > 0, ConfigError, "KeyValueCache: ", layers,
             " layers, ", sequences, " sequences, ", columns, " columns");
  slots_ = first_numbers(sequences);
  slot_count_ = sequences;
  capacity_ = kFirstCapacity;
  for (Tensor& layer : layers_) layer = empty({sequences * capacity_, columns_}, options_);
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
  const int64_t longest = max_length_with(added);
  if (longest > capacity_) reallocate(first_numbers(sequences()), std::max(longest, 2 * capacity_));
  places_ = places(added);
  PooledVector<int64_t> query_first, key_first;
  PooledVector<int32_t> query_length, key_length;
  for (size_t i = 0; i < lengths_.size(); ++i) {
    const auto sequence = static_cast<int64_t>(i);
    lengths_[i] += added.query_length(sequence);
    query_first.push_back(added.query_first(sequence));
    query_length.push_back(added.query_length(sequence));
    key_first.push_back(slots_[i] * capacity_);
    key_length.push_back(static_cast<int32_t>(lengths_[i]));
  }
  longest_ = longest;
  segments_ = Segments(query_first, query_length, key_first, key_length);
}

// Behind what the sequences have.
Tensor KeyValueCache::places(const Segments& added) const {
  PooledVector<int64_t> places(static_cast<size_t>(added.query_rows_end()), kNoToken);
  for (size_t i = 0; i < lengths_.size(); ++i) {
    const auto sequence = static_cast<int64_t>(i);
    const auto first = places.begin() + added.query_first(sequence);
    if (added.query_length(sequence) > 0)
      std::iota(first, first + added.query_length(sequence), slots_[i] * capacity_ + lengths_[i]);
  }
  return row_numbers(places, options_.device);
}

Tensor KeyValueCache::append(int64_t layer, const Tensor& key_value) {
  HEED_CHECK(layer >= 0 && layer < static_cast<int64_t>(layers_.size()), IndexError,
             "KeyValueCache: there is no layer ", layer, " of ", layers_.size());
  const int64_t rows = places_.defined() ? places_.numel() : 0;
  HEED_CHECK(key_value.rank() == 2 && key_value.size(0) >= rows && key_value.size(1) == columns_, ShapeError,
             "KeyValueCache: keys and values are ", key_value.shape(), ", expected [", rows, ", ", columns_,
             "]");
  const Tensor& all = layers_[static_cast<size_t>(layer)];
  if (rows > 0) index_put_(all, places_, key_value.size(0) == rows ? key_value : key_value.slice(0, 0, rows));
  return all;
}

// In new memory sequence i is what sequence parents[i] was, in slot i.
void KeyValueCache::reallocate(std::span<const int64_t> parents, int64_t capacity) {
  PooledVector<int64_t> rows(parents.size() * static_cast<size_t>(capacity), kNoToken), lengths;
  for (size_t i = 0; i < parents.size(); ++i) {
    const auto parent = static_cast<size_t>(parents[i]);
    const auto first = rows.begin() + static_cast<int64_t>(i) * capacity;
    std::iota(first, first + lengths_[parent], slots_[parent] * capacity_);
    lengths.push_back(lengths_[parent]);
  }
  const Tensor index = row_numbers(rows, options_.device);
  for (Tensor& layer : layers_) layer = index_select(layer, index);
  lengths_ = std::move(lengths);
  slots_ = first_numbers(std::ssize(parents));
  slot_count_ = std::ssize(parents);
  capacity_ = capacity;
}

// Sequence from[i] to slot to[i].
void KeyValueCache::copy_sequences(std::span<const int64_t> from, std::span<const int64_t> to) {
  PooledVector<int64_t> rows, places;
  for (size_t i = 0; i < from.size(); ++i) {
    const auto sequence = static_cast<size_t>(from[i]);
    for (int64_t row = 0; row < lengths_[sequence]; ++row) {
      rows.push_back(slots_[sequence] * capacity_ + row);
      places.push_back(to[i] * capacity_ + row);
    }
  }
  if (rows.empty()) return;
  const Tensor index = row_numbers(rows, options_.device), place = row_numbers(places, options_.device);
  for (const Tensor& layer : layers_) index_put_(layer, place, index_select(layer, index));
}

void KeyValueCache::select(std::span<const int64_t> parents) {
  for (const int64_t parent : parents)
    HEED_CHECK(parent >= 0 && parent < sequences(), IndexError, "KeyValueCache::select: parent ", parent,
               " is not in [0, ", sequences(), ")");
  if (std::ssize(parents) > slot_count_) {
    reallocate(parents, capacity_);
  } else {
    constexpr int64_t kNone = -1;
    PooledVector<int64_t> owners(static_cast<size_t>(slot_count_), kNone), slots(parents.size(), kNone);
    for (size_t i = 0; i < parents.size(); ++i) {
      const int64_t slot = slots_[static_cast<size_t>(parents[i])];
      int64_t& owner = owners[static_cast<size_t>(slot)];
      if (owner != kNone) continue;
      owner = static_cast<int64_t>(i);
      slots[i] = slot;
    }
    // The others get copies, in slots that nobody has.
    PooledVector<int64_t> from, to, lengths;
    int64_t next = 0;
    for (size_t i = 0; i < parents.size(); ++i) {
      lengths.push_back(lengths_[static_cast<size_t>(parents[i])]);
      if (slots[i] != kNone) continue;
      while (owners[static_cast<size_t>(next)] != kNone) ++next;
      slots[i] = next++;
      from.push_back(parents[i]);
      to.push_back(slots[i]);
    }
    copy_sequences(from, to);
    slots_ = std::move(slots);
    lengths_ = std::move(lengths);
  }
  longest_ = lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

}  // namespace heed::nn
