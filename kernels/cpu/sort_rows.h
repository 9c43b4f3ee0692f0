// What sorting does by the vector. Private to kernels/cpu: not installed.
#pragma once

#include <cstdint>

#include <heed/core/base/dtype.h>

namespace heed::cpu {

/// Keys that lie side by side are read and written by the vector, of which this many elements may lie beyond
/// the last one.
constexpr int64_t kSortSlack = 31;

/// ranks[i] = keys that a stable sort puts before keys[i]; `n` of them, with room for kSortSlack more of
/// both. Key is int32_t or int64_t. Takes n^2 comparisons.
template <class Key>
void rank_keys(Key* ranks, const Key* keys, int64_t n);

/// The elements of a row that sorting puts before `threshold`, other than those equal to it. That is not NaN
/// where the order descends.
template <class T>
struct BeforeThreshold {
  const T* x;
  int64_t n;
  T threshold;
  bool descending;
  int64_t* positions;  // theirs, in order
  int64_t room;        // of positions; at least 64
};

/// How many elements were looked at, all n but where `room` might not have done, and how many were found.
struct Scanned {
  int64_t elements, found;
};
template <class T>
Scanned find_before(const BeforeThreshold<T>& row);

}  // namespace heed::cpu
