// How the rows of a batch divide into sequences. Kernels see only this: dense [B, S, D] is uniform segments,
// dense with key lengths is segments with gaps, packed is segments without.
#pragma once

#include <cstdint>

namespace heed {

/// Sequence i has queries in rows [query_first[i], query_first[i] + query_length[i]) and keys likewise.
/// The arrays have `count` elements and lie in the memory of the device that the kernel runs on.
struct SegmentsView {
  int64_t count;
  const int64_t* query_first;
  const int64_t* key_first;
  const int32_t* query_length;
  const int32_t* key_length;
  int32_t max_query;    // no query_length is longer; known on the host
  int32_t max_key;      // no key_length is longer
  int64_t total_query;  // the sum of query_length; -1 where only the device knows
  int64_t total_key;    // the sum of key_length; likewise
  bool in_order =
      false;  // each sequence, of queries and of keys, begins at or after the end of the one before
};

}  // namespace heed
