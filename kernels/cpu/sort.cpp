#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <heed/kernels/cpu/simd/strided-inl.h>
#include <heed/kernels/cpu/sort_rows.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/indexing.h>

namespace heed::cpu {
namespace {

constexpr int64_t kRanked = 128;     // up to so many are sorted by comparing each with each
constexpr int64_t kCandidates = 64;  // and 2 k, to be sorted at once with the k best so far

/// An element in an array that is sorted by its key. Key is uint32_t, or uint64_t for wide elements and for
/// lines whose indices need it.
template <class Key>
struct Entry {
  Key key;
  Key index;
};

template <class T>
using key_t = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

/// Bits that compare, as an unsigned number, as elements do; the same for equal elements.
template <class T>
key_t<T> key_of(T x) {
  using Bits = key_t<T>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  if constexpr (std::is_same_v<T, bfloat16>) {
    return key_of(float{x}) >> 16;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<Bits>(x) ^ kSign;
  } else {
    const Bits bits = x == 0 ? Bits{0} : std::bit_cast<Bits>(x);  // -0 equals +0
    return x != x ? ~Bits{0} : bits & kSign ? ~bits : bits | kSign;
  }
}

template <class Key, class T>
Entry<Key> entry_of(T x, int64_t index, bool descending) {
  const key_t<T> key = key_of(x);
  return {descending ? ~key : key, static_cast<Key>(index)};
}

/// Sorts by ranks; the result is in `to`.
template <class Key>
void sort_by_ranks(Entry<Key>* to, const Entry<Key>* entries, int64_t n) {
  using Signed = std::make_signed_t<Key>;
  Signed keys[kRanked + kSortSlack], ranks[kRanked + kSortSlack];
  for (int64_t i = 0; i < n; ++i)
    keys[i] = static_cast<Signed>(entries[i].key ^ static_cast<Key>(std::numeric_limits<Signed>::min()));
  std::fill_n(keys + n, kSortSlack, Signed{0});
  rank_keys(ranks, keys, n);
  for (int64_t i = 0; i < n; ++i) to[ranks[i]] = entries[i];
}

/// Radix sort, from the least significant byte on; the result is in either array. Count has room for n. Where
/// 16 bits do, they should be taken: on Zen 3, wider counters double the time of rows of normal numbers.
template <class Count, class Key>
Entry<Key>* sort_by_digits(Entry<Key>* entries, Entry<Key>* spare, int64_t n) {
  constexpr int kDigits = sizeof(Key), kRadix = 256;
  const auto digit = [](Key key, int d) { return key >> (8 * d) & (kRadix - 1); };
  Count places[kRadix][kDigits] = {};  // how many have the digit, then where the next one that has it goes
  for (int64_t i = 0; i < n; ++i)
    for (int d = 0; d < kDigits; ++d) ++places[digit(entries[i].key, d)][d];
  bool constant[kDigits];
  for (int d = 0; d < kDigits; ++d)
    constant[d] = places[digit(entries[0].key, d)][d] == static_cast<Count>(n);
  Count next[kDigits] = {};
  for (auto& place : places)
    for (int d = 0; d < kDigits; ++d)
      next[d] = static_cast<Count>(next[d] + std::exchange(place[d], next[d]));
  for (int d = 0; d < kDigits; ++d) {
    if (constant[d]) continue;
    for (int64_t i = 0; i < n; ++i) {
      const Entry<Key> entry = entries[i];
      spare[places[digit(entry.key, d)][d]++] = entry;
    }
    std::swap(entries, spare);
  }
  return entries;
}

/// Entries and a second array of as many, to sort them.
template <class Key>
struct Entries {
  Entry<Key>*first, *spare;

  /// Entries with equal keys keep their order.
  void sort(int64_t n) {
    Entry<Key>* sorted = spare;
    if (n <= kRanked)
      sort_by_ranks(spare, first, n);
    else if (n <= std::numeric_limits<uint16_t>::max())
      sorted = sort_by_digits<uint16_t>(first, spare, n);
    else
      sorted = sort_by_digits<Key>(first, spare, n);
    if (sorted == spare) std::swap(first, spare);
  }
};

/// Sorts the first k of a row without gaps to the front of `entries`, which have room for `capacity`. Goes
/// through the row with the k-th best so far as threshold, which moves whenever the entries are full.
template <class Key, class T>
void select_first(Entries<Key>& entries, int64_t capacity, int64_t* positions, const T* x, int64_t n,
                  int64_t k, bool descending) {
  for (int64_t i = 0; i < capacity; ++i) entries.first[i] = entry_of<Key>(x[i], i, descending);
  entries.sort(capacity);
  for (int64_t i = capacity; i < n;) {
    const T threshold = x[entries.first[k - 1].index];
    if (descending && threshold != threshold) break;  // NaN, which nothing precedes
    const Scanned scanned = find_before<T>({x + i, n - i, threshold, descending, positions, capacity - k});
    for (int64_t j = 0; j < scanned.found; ++j) {
      const int64_t index = i + positions[j];
      entries.first[k + j] = entry_of<Key>(x[index], index, descending);
    }
    // The best so far stand before the new ones: among equals the order is still that of the row.
    entries.sort(k + scanned.found);
    i += scanned.elements;
  }
}

template <class Key, class T>
void write_first(const kernels::Sort<T>& args, const Entry<Key>* entries, const T* x, T* values,
                 int64_t* indices) {
  // Copied, since for all the compiler knows what is written may lie in args.
  const int64_t k = args.k, step = args.stride_x, step_values = args.stride_values,
                step_indices = args.stride_indices;
  for (int64_t i = 0; i < k; ++i) {
    const auto from = static_cast<int64_t>(entries[i].index);
    values[i * step_values] = x[from * step];
    indices[i * step_indices] = from;
  }
}

template <class Key, class T>
void sort_lines(const kernels::Sort<T>& args, const Run<3>& run) {
  const bool selects = 4 * args.k + kCandidates < args.n;
  const int64_t capacity = selects ? 3 * args.k + kCandidates : args.n;
  const Workspace<Entry<Key>> room(2 * capacity);
  const Workspace<int64_t> positions(selects ? capacity : 0);
  const Workspace<T> copy(selects && args.stride_x != 1 ? args.n : 0);
  Entries<Key> entries{room.data(), room.data() + capacity};
  for (int64_t line = 0; line < run.n; ++line) {
    const T* x = args.x + run.at[2] + line * run.step[2];
    if (!selects) {
      for (int64_t i = 0; i < args.n; ++i)
        entries.first[i] = entry_of<Key>(x[i * args.stride_x], i, args.descending);
      entries.sort(args.n);
    } else {
      const T* row = x;
      if (args.stride_x != 1) {
        for (int64_t i = 0; i < args.n; ++i) copy.data()[i] = x[i * args.stride_x];
        row = copy.data();
      }
      select_first(entries, capacity, positions.data(), row, args.n, args.k, args.descending);
    }
    write_first(args, entries.first, x, args.values + run.at[0] + line * run.step[0],
                args.indices + run.at[1] + line * run.step[1]);
  }
}

}  // namespace

template <class T>
void sort(const kernels::Sort<T>& args) {
  if (args.k == 0) return;
  const bool wide = sizeof(T) == 8 || args.n > std::numeric_limits<uint32_t>::max();
  parallel_walk(args.lines, lines_per_task(args.n), [&](const Run<3>& run) {
    if (wide)
      sort_lines<uint64_t>(args, run);
    else if constexpr (sizeof(T) < 8)
      sort_lines<uint32_t>(args, run);
  });
}

#define HEED_INSTANTIATE(T) template void sort<T>(const kernels::Sort<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
