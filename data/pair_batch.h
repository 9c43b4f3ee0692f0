// Pairs of symbol sequences, and batches of them laid out for a sequence-to-sequence model.
#pragma once

#include <cstdint>
#include <span>

#include <heed/core/base/memory/pooled_vector.h>

namespace heed::data {

/// Symbols that the program itself puts into a sequence; those of a vocabulary begin at kFirstSymbol.
inline constexpr int64_t kPad = 0;
inline constexpr int64_t kStart = 1;
inline constexpr int64_t kEnd = 2;
inline constexpr int64_t kFirstSymbol = 3;

/// Symbols in order. Pooled, as all that a batch is made of: a training step asks the system for no memory.
using TokenIds = PooledVector<int64_t>;

/// A source and its target, bare: without start and end marks.
struct Pair {
  TokenIds source;
  TokenIds target;

  friend bool operator==(const Pair&, const Pair&) = default;
};

/// One side of a batch: the rows of sequence i are [first[i], first[i] + length[i]).
struct Sequences {
  PooledVector<int64_t> first;
  PooledVector<int32_t> length;
  int64_t rows = 0;        // of the whole side, pad rows included
  int32_t max_length = 0;  // the longest length
};

/// A batch of B pairs. Packed, the sequences follow one another and there is no pad row; padded (see
/// padded()), every sequence has max_length rows, those after its own holding kPad.
struct PairBatch {
  Sequences source;
  Sequences target;
  TokenIds source_ids;          // [source.rows]: `1 s… 2`, or bare `s…`
  TokenIds target_ids;          // [target.rows]: what the decoder is fed, `1 t…`: labels, one row late
  TokenIds labels;              // [target.rows]: what it should answer, `t… 2`, or bare `t…`
  PooledVector<int64_t> pairs;  // [B]: which pair of the data set each one is

  int64_t size() const { return static_cast<int64_t>(source.length.size()); }
  /// Labels that count for the loss: those of no pad row.
  int64_t target_tokens() const;
};

/// What a batch adds to the symbols of a pair. A target always begins with kStart.
struct Marks {
  bool source = true;  // the source is framed by kStart and kEnd; false: bare
  bool end = true;     // a target's last label is kEnd; false: its last symbol
};

/// Rows that a pair takes on each side of a batch.
int64_t source_rows(const Pair& pair, Marks marks);
int64_t target_rows(const Pair& pair, Marks marks);

/// Packs `pairs`, whose numbers in the data set are `numbers`, in the given order. DataError for an empty
/// target without an end mark.
PairBatch pack(std::span<const Pair> pairs, std::span<const int64_t> numbers, Marks marks = {});

/// The same batch as dense [B, max_length] rows on both sides; lengths stay.
PairBatch padded(const PairBatch& batch);

}  // namespace heed::data
