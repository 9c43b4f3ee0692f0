// Keys and values of the past, so that decoding does not compute them again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heed/core/base/memory/pooled_vector.h>
#include <heed/core/segments.h>
#include <heed/core/tensor.h>

namespace heed::nn {

/// The keys and values that each layer of a model made of several sequences, which grow at their ends. It
/// knows nothing of the model but the number of its layers and the columns of their keys and values. Each
/// sequence lies in a slot of its own, whose rows double when the longest one needs more; slots of sequences
/// that have been dropped go to others, and from memory when it grows. Hold a NoGrad while using it. After an
/// exception inside a forward its layers differ in length, and it is of no more use.
class KeyValueCache {
 public:
  /// Of empty sequences. `columns` are those of keys and values side by side.
  KeyValueCache(int64_t layers, int64_t sequences, int64_t columns, const TensorOptions& options);
  KeyValueCache(KeyValueCache&&) = default;  // a copy would write where the first does
  KeyValueCache& operator=(KeyValueCache&&) = default;

  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  /// Tokens of a sequence. IndexError.
  int64_t length(int64_t sequence) const;
  /// Of the longest one.
  int64_t max_length() const { return longest_; }
  /// Of the longest one with the rows of `added`.
  int64_t max_length_with(const Segments& added) const;

  /// Where the queries of `added` will stand in their sequences, i64 [rows] on the host; 0 in rows of none.
  Tensor positions(const Segments& added, int64_t rows) const;
  /// Makes room for the rows of `added`, its queries, behind what sequence i has. Then each layer appends
  /// once. ShapeError for another number of sequences.
  void extend(const Segments& added);
  /// Keys and values of the added rows [rows, columns] of a layer; returns those of all rows it has, which
  /// segments() tells apart.
  Tensor append(int64_t layer, const Tensor& key_value);
  /// The added rows as queries, all rows of the sequences as keys.
  const Segments& segments() const { return segments_; }

  /// Sequence i becomes a copy of sequence parents[i]; fewer parents than sequences drop the others. The
  /// first copy of a sequence is the sequence itself: only the rows of others are copied. IndexError for a
  /// parent that is not there.
  void select(std::span<const int64_t> parents);

 private:
  void reallocate(std::span<const int64_t> parents, int64_t capacity);
  void copy_sequences(std::span<const int64_t> from, std::span<const int64_t> to);
  Tensor places(const Segments& added) const;

  PooledVector<Tensor> layers_;  // [slots * capacity, columns]
  PooledVector<int64_t> lengths_;
  PooledVector<int64_t> slots_;  // of each sequence: its rows begin at slot * capacity
  int64_t slot_count_ = 0;
  int64_t columns_, capacity_ = 0, longest_ = 0;
  TensorOptions options_;
  Tensor places_;  // of the added rows, i64 [their end]; kNoToken for rows of none
  Segments segments_;
};

}  // namespace heed::nn
