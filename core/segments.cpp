#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/memory/pooled_vector.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/segments.h>
#include <heed/core/storage.h>

namespace heed {
namespace {

using Rows = PooledVector<int64_t>;
using Lengths = PooledVector<int32_t>;

constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();

// Two sequences that have a row in common.
struct Overlap {
  size_t a, b;
  int64_t row;
};

// Checks that a side's rows lie in memory of a sane size, and finds the first row that belongs to two
// sequences.
std::optional<Overlap> check_side(const Rows& first, const Lengths& length, const char* side) {
  const size_t count = first.size();
  bool sorted = true;
  int64_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    HEED_CHECK(length[i] >= 0, ShapeError, "segments: sequence ", i, " has ", length[i], " ", side, " rows");
    HEED_CHECK(first[i] >= 0 && first[i] <= std::numeric_limits<int64_t>::max() - length[i], ShapeError,
               "segments: the ", side, " rows of sequence ", i, " start at ", first[i],
               "; they must start at 0 or later and end before 2^63");
    if (length[i] == 0) continue;
    sorted &= first[i] >= end;
    end = first[i] + length[i];
  }
  if (sorted) return {};
  PooledVector<size_t> order;
  for (size_t i = 0; i < count; ++i)
    if (length[i] > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return first[a] < first[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t a = order[i - 1], b = order[i];
    if (first[a] + length[a] > first[b]) return Overlap{std::min(a, b), std::max(a, b), first[b]};
  }
  return {};
}

void check_dense(int64_t count, int64_t queries, int64_t keys) {
  HEED_CHECK(count >= 0, ShapeError, "segments: ", count, " sequences; there cannot be fewer than 0");
  for (int64_t length : {queries, keys}) {
    HEED_CHECK(length >= 0 && length <= kLongest, ShapeError, "segments: a length of ", length,
               "; it must be in [0, ", kLongest, "]");
    HEED_CHECK(length == 0 || count <= std::numeric_limits<int64_t>::max() / length, ShapeError,
               "segments: ", count, " sequences of ", length, " rows are more than 2^63 rows");
  }
}

Rows packed_rows(std::span<const int32_t> lengths) {
  Rows first;
  first.reserve(lengths.size());
  int64_t row = 0;
  for (int32_t length : lengths) {
    first.push_back(row);
    row += length;
  }
  return first;
}

Rows dense_rows(int64_t count, int64_t length) {
  Rows first(static_cast<size_t>(count));
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int64_t>(i) * length;
  return first;
}

Lengths bounded(std::span<const int32_t> lengths, int64_t count, int64_t bound) {
  HEED_CHECK(static_cast<int64_t>(lengths.size()) == count, ShapeError, "segments: ", lengths.size(),
             " lengths for ", count, " sequences");
  for (size_t i = 0; i < lengths.size(); ++i)
    HEED_CHECK(lengths[i] <= bound, ShapeError, "segments: length ", lengths[i], " of sequence ", i,
               " exceeds the ", bound, " rows that each sequence has");
  return {lengths.begin(), lengths.end()};
}

Lengths uniform_lengths(int64_t count, int64_t length) {
  return Lengths(static_cast<size_t>(count), static_cast<int32_t>(length));
}

template <class Array>
auto at(const Array& array, int64_t sequence) {
  HEED_CHECK(sequence >= 0 && sequence < static_cast<int64_t>(array.size()), IndexError,
             "segments: sequence ", sequence, " of ", array.size());
  return array[static_cast<size_t>(sequence)];
}

// What the host wants to know of one side.
struct Summary {
  int64_t total = 0, end = 0;
  int32_t longest = 0;
  bool in_order = true;

  Summary(int64_t rows, int32_t most) : total(-1), end(rows), longest(most) {}
  Summary(const Rows& first, const Lengths& length) {
    for (size_t i = 0; i < first.size(); ++i) {
      in_order &= i == 0 || first[i] >= first[i - 1] + length[i - 1];
      total += length[i];
      longest = std::max(longest, length[i]);
      if (length[i] > 0) end = std::max(end, first[i] + length[i]);
    }
  }
};

// One side's arrays where the device alone knows them.
struct DeviceSide {
  Tensor first, length;

  explicit operator bool() const { return first.defined(); }
  int64_t count() const { return first.numel(); }
};

}  // namespace

struct Segments::State {
  Rows query_first, key_first;
  Lengths query_length, key_length;
  DeviceSide device_query, device_key;  // in place of those above
  Summary query, key;
  bool keys_shared = false;

  State(DeviceSide query_side, Summary query_summary, DeviceSide key_side, Summary key_summary)
      : device_query(std::move(query_side)),
        device_key(std::move(key_side)),
        query(query_summary),
        key(key_summary) {}

  State(Rows query_rows, Lengths query_lengths, Rows key_rows, Lengths key_lengths)
      : query_first(std::move(query_rows)),
        key_first(std::move(key_rows)),
        query_length(std::move(query_lengths)),
        key_length(std::move(key_lengths)),
        query(query_first, query_length),
        key(key_first, key_length) {}

  // Checked: ShapeError.
  static Segments make(Rows query_first, Lengths query_length, Rows key_first, Lengths key_length) {
    HEED_CHECK(query_first.size() == query_length.size() && key_first.size() == query_length.size() &&
                   key_length.size() == query_length.size(),
               ShapeError, "segments: the arrays describe ", query_first.size(), ", ", query_length.size(),
               ", ", key_first.size(), " and ", key_length.size(), " sequences; they must agree");
    const std::optional<Overlap> twice = check_side(query_first, query_length, "query");
    HEED_CHECK(!twice, ShapeError, "segments: the query rows of sequences ", twice->a, " and ", twice->b,
               " overlap in row ", twice->row, "; a query row belongs to one sequence");
    const bool shared = check_side(key_first, key_length, "key").has_value();
    const auto state =
        std::allocate_shared<State>(PoolAllocator<State>(), std::move(query_first), std::move(query_length),
                                    std::move(key_first), std::move(key_length));
    state->keys_shared = shared;
    return Segments(state);
  }

  int64_t count() const {
    return device_query ? device_query.count() : static_cast<int64_t>(query_first.size());
  }

  // This, where the host knows the sequences.
  const State& on_host(const char* question) const {
    HEED_CHECK(!device_query, StateError, "segments: ", question, " is known to ",
               device_query.first.device(), " only: they may change there between uses");
    return *this;
  }

  SegmentsView view_of(const int64_t* query_rows, const int64_t* key_rows, const int32_t* query_lengths,
                       const int32_t* key_lengths) const {
    return {.count = count(),
            .query_first = query_rows,
            .key_first = key_rows,
            .query_length = query_lengths,
            .key_length = key_lengths,
            .max_query = query.longest,
            .max_key = key.longest,
            .total_query = query.total,
            .total_key = key.total,
            .in_order = query.in_order && key.in_order};
  }

  // Both row arrays, then both length arrays, in one block of the device's memory.
  SegmentsView device_view(Device device) {
    if (device_query) {
      HEED_CHECK(device == device_query.first.device(), DeviceError, "segments: they are known to ",
                 device_query.first.device(), " only, not to ", device);
      return view_of(device_query.first.data<int64_t>(), device_key.first.data<int64_t>(),
                     device_query.length.data<int32_t>(), device_key.length.data<int32_t>());
    }
    const std::lock_guard<std::mutex> lock(mutex);
    auto copy = std::find_if(copies.begin(), copies.end(),
                             [device](const RefPtr<Storage>& block) { return block->device() == device; });
    const int64_t count = static_cast<int64_t>(query_first.size());
    const int64_t rows = count * size_of(DType::i64), lengths = count * size_of(DType::i32);
    if (copy == copies.end()) {
      const RefPtr<Storage> block = make_ref<Storage>(device, 2 * (rows + lengths));
      PooledVector<std::byte> all(static_cast<size_t>(block->bytes()));
      std::byte* to = all.data();
      for (const Rows* first : {&query_first, &key_first})
        to = std::copy_n(reinterpret_cast<const std::byte*>(first->data()), rows, to);
      for (const Lengths* length : {&query_length, &key_length})
        to = std::copy_n(reinterpret_cast<const std::byte*>(length->data()), lengths, to);
      copy_bytes(block->data(), device, all.data(), kCpu, block->bytes());
      copy = copies.insert(copies.end(), block);
    }
    std::byte* block = (*copy)->data();
    return view_of(reinterpret_cast<const int64_t*>(block), reinterpret_cast<const int64_t*>(block + rows),
                   reinterpret_cast<const int32_t*>(block + 2 * rows),
                   reinterpret_cast<const int32_t*>(block + 2 * rows + lengths));
  }

  std::mutex mutex;
  PooledVector<RefPtr<Storage>> copies;  // one for each device that asked
};

Segments::Segments() : Segments(State::make({}, {}, {}, {})) {}

Segments::Segments(std::shared_ptr<State> state) : state_(std::move(state)) {}

Segments::Segments(std::span<const int64_t> query_first, std::span<const int32_t> query_length,
                   std::span<const int64_t> key_first, std::span<const int32_t> key_length)
    : Segments(State::make({query_first.begin(), query_first.end()},
                           {query_length.begin(), query_length.end()}, {key_first.begin(), key_first.end()},
                           {key_length.begin(), key_length.end()})) {}

Segments::Segments(std::initializer_list<int64_t> query_first, std::initializer_list<int32_t> query_length,
                   std::initializer_list<int64_t> key_first, std::initializer_list<int32_t> key_length)
    : Segments(State::make(query_first, query_length, key_first, key_length)) {}

Segments Segments::packed(std::span<const int32_t> lengths) { return packed(lengths, lengths); }

Segments Segments::packed(std::span<const int32_t> query_lengths, std::span<const int32_t> key_lengths) {
  return State::make(packed_rows(query_lengths), {query_lengths.begin(), query_lengths.end()},
                     packed_rows(key_lengths), {key_lengths.begin(), key_lengths.end()});
}

Segments Segments::dense(int64_t count, int64_t length) { return dense(count, length, length); }

Segments Segments::dense(int64_t count, int64_t queries, int64_t keys) {
  check_dense(count, queries, keys);
  return State::make(dense_rows(count, queries), uniform_lengths(count, queries), dense_rows(count, keys),
                     uniform_lengths(count, keys));
}

Segments Segments::dense(int64_t count, int64_t queries, int64_t keys, std::span<const int32_t> key_lengths) {
  check_dense(count, queries, keys);
  return State::make(dense_rows(count, queries), uniform_lengths(count, queries), dense_rows(count, keys),
                     bounded(key_lengths, count, keys));
}

Segments Segments::dense(int64_t count, int64_t length, std::span<const int32_t> lengths) {
  check_dense(count, length, length);
  return State::make(dense_rows(count, length), bounded(lengths, count, length), dense_rows(count, length),
                     bounded(lengths, count, length));
}

Segments Segments::on_device(const Tensor& first, const Tensor& length, int64_t rows, int32_t longest) {
  HEED_CHECK(!backend(first.device()).host_memory && length.device() == first.device(), DeviceError,
             "segments: on_device takes arrays on one CUDA device, got ", first.device(), " and ",
             length.device());
  HEED_CHECK(first.dtype() == DType::i64 && length.dtype() == DType::i32, DTypeError,
             "segments: on_device takes first rows in i64 and lengths in i32, got ", first.dtype(), " and ",
             length.dtype());
  HEED_CHECK(
      first.rank() == 1 && first.shape() == length.shape() && first.is_contiguous() && length.is_contiguous(),
      ShapeError, "segments: on_device takes two arrays [count] without gaps, got ", first.shape(), " and ",
      length.shape());
  HEED_CHECK(rows >= 0 && longest >= 0, ShapeError, "segments: ", rows, " rows, the longest sequence ",
             longest, "; neither can be negative");
  const DeviceSide side{first.detach(), length.detach()};
  const Summary summary(rows, longest);
  return Segments(std::allocate_shared<State>(PoolAllocator<State>(), side, summary, side, summary));
}

Segments Segments::cross(const Segments& queries, const Segments& keys) {
  HEED_CHECK(queries.count() == keys.count(), ShapeError, "segments: queries of ", queries.count(),
             " sequences with keys of ", keys.count(), "; the counts must be equal");
  const State &q = *queries.state_, &k = *keys.state_;
  HEED_CHECK(bool(q.device_query) == bool(k.device_key), DeviceError, "segments: a device alone knows the ",
             q.device_query ? "queries" : "keys", ", the host the ", q.device_query ? "keys" : "queries",
             "; both must be of one kind");
  if (q.device_query)
    return Segments(
        std::allocate_shared<State>(PoolAllocator<State>(), q.device_query, q.query, k.device_key, k.key));
  return State::make(queries.state_->query_first, queries.state_->query_length, keys.state_->key_first,
                     keys.state_->key_length);
}

int64_t Segments::count() const { return state_->count(); }
int64_t Segments::query_first(int64_t sequence) const {
  return at(state_->on_host("where queries begin").query_first, sequence);
}
int64_t Segments::key_first(int64_t sequence) const {
  return at(state_->on_host("where keys begin").key_first, sequence);
}
int32_t Segments::query_length(int64_t sequence) const {
  return at(state_->on_host("the length of queries").query_length, sequence);
}
int32_t Segments::key_length(int64_t sequence) const {
  return at(state_->on_host("the length of keys").key_length, sequence);
}
bool Segments::keys_shared() const { return state_->keys_shared; }
int64_t Segments::total_query() const { return state_->on_host("the number of queries").query.total; }
int64_t Segments::total_key() const { return state_->on_host("the number of keys").key.total; }
int32_t Segments::max_query() const { return state_->query.longest; }
int32_t Segments::max_key() const { return state_->key.longest; }
int64_t Segments::query_rows_end() const { return state_->query.end; }
int64_t Segments::key_rows_end() const { return state_->key.end; }

SegmentsView Segments::view(Device device) const {
  if (!backend(device).host_memory || state_->device_query) return state_->device_view(device);
  return state_->view_of(state_->query_first.data(), state_->key_first.data(), state_->query_length.data(),
                         state_->key_length.data());
}

}  // namespace heed
