// Segments: which rows of a matrix belong to which sequence.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

#include <heed/core/base/device.h>
#include <heed/core/base/segments.h>
#include <heed/core/tensor.h>

namespace heed {

/// The sequences of a batch, each with its query rows and its key rows. Copies share. Immutable but for what
/// on_device() says.
/// For self-attention queries and keys are the same rows; for cross-attention queries are the target's rows
/// and keys the source's.
class Segments {
 public:
  /// One empty batch.
  Segments();
  /// Packed: the sequences' rows follow each other without gaps.
  static Segments packed(std::span<const int32_t> lengths);
  static Segments packed(std::span<const int32_t> query_lengths, std::span<const int32_t> key_lengths);
  /// Dense [count, length, …]: sequence i starts at row i * length, all of equal length.
  static Segments dense(int64_t count, int64_t length);
  static Segments dense(int64_t count, int64_t queries, int64_t keys);
  /// Dense with the first key_lengths[i] keys of each sequence valid. ShapeError if one exceeds `keys`.
  static Segments dense(int64_t count, int64_t queries, int64_t keys, std::span<const int32_t> key_lengths);
  /// Dense where also the queries beyond lengths[i] are padding.
  static Segments dense(int64_t count, int64_t length, std::span<const int32_t> lengths);
  /// Any layout. ShapeError where the arrays differ in size, a number is negative, or a query row belongs to
  /// two sequences. Key rows may be shared, as by the hypotheses of a beam; keys and values then get no
  /// gradient.
  Segments(std::span<const int64_t> query_first, std::span<const int32_t> query_length,
           std::span<const int64_t> key_first, std::span<const int32_t> key_length);
  Segments(std::initializer_list<int64_t> query_first, std::initializer_list<int32_t> query_length,
           std::initializer_list<int64_t> key_first, std::initializer_list<int32_t> key_length);
  /// Segments that the device alone knows, for captured steps: sequence i is rows [first[i], first[i] +
  /// length[i]), i64 and i32 [count] in the memory of a CUDA device, which may be written anew between uses.
  /// They must stay within `rows`, no longer than `longest` and in order, each sequence (one of length 0 too)
  /// beginning at or after the end of the one before, which nobody checks: rows between them are set to zero.
  /// Of the questions below those about a sequence or a total are StateErrors. ShapeError, DTypeError,
  /// DeviceError.
  static Segments on_device(const Tensor& first, const Tensor& length, int64_t rows, int32_t longest);
  /// Cross-attention: the queries of one batch with the keys of another. ShapeError if the counts differ,
  /// DeviceError if the device alone knows the one and not the other.
  static Segments cross(const Segments& queries, const Segments& keys);

  int64_t count() const;
  int64_t query_first(int64_t sequence) const;
  int64_t key_first(int64_t sequence) const;
  int32_t query_length(int64_t sequence) const;
  int32_t key_length(int64_t sequence) const;
  /// Whether a key row belongs to two sequences.
  bool keys_shared() const;
  int64_t total_query() const;
  int64_t total_key() const;
  int32_t max_query() const;
  int32_t max_key() const;
  /// One past the last row that any segment names; `rows` of those on a device.
  int64_t query_rows_end() const;
  int64_t key_rows_end() const;

  /// The arrays in the memory of `device`, copied there on first use. DeviceError if another alone knows
  /// them.
  SegmentsView view(Device device) const;

 private:
  struct State;
  explicit Segments(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace heed
