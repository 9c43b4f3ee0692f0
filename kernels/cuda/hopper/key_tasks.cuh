// In which order blocks of threads take the keys whose gradients they make.
#pragma once

#include <heed/kernels/simt/simt.h>

namespace heed::cuda::hopper {

/// The stretch-th 128 keys of a sequence and head of keys.
struct KeyTask {
  int sequence, key_head, stretch;

  static __host__ __device__ constexpr KeyTask none() { return {-1, -1, -1}; }
  __host__ __device__ constexpr bool there() const { return sequence >= 0; }
};

/// Tasks by number: the stretches of keys of `together` sequences of a head in turn, the last stretch first.
/// Under a causal rule each begins with queries that no other has begun with. Without one all begin with the
/// first queries, where each waits for the one before it: those that begin together are of different
/// sequences, and follow one tile behind.
struct KeyTasks {
  unsigned sequences, heads, stretches, together;

  __host__ __device__ constexpr unsigned count() const { return sequences * heads * stretches; }

  /// none() from count() on.
  __host__ __device__ constexpr KeyTask operator[](unsigned number) const {
    if (number >= count()) return KeyTask::none();
    const unsigned planes = sequences * heads, round = together * stretches;
    const unsigned first = number / round * together, place = number % round;
    const unsigned beside = planes - first < together ? planes - first : together;
    const unsigned plane = first + place % beside;
    return {static_cast<int>(plane % sequences), static_cast<int>(plane / sequences),
            static_cast<int>(stretches - 1 - place / beside)};
  }
};

}  // namespace heed::cuda::hopper
