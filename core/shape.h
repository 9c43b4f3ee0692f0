// Shapes and strides: short lists of int64 that live inside their tensor.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

#include <heed/core/base/strided.h>

namespace heed {

/// Up to kMaxRank numbers. As the shape of a tensor each is >= 0; the last axis is the fastest. shape[-1] is
/// that of the last axis, as wherever an axis is named.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  /// ShapeError if there are more than kMaxRank.
  explicit Shape(std::span<const int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
    if (sizes.size() > kMaxRank) fail_rank(sizes.size());
    for (int axis = 0; axis < rank_; ++axis) sizes_[axis] = sizes[static_cast<size_t>(axis)];
  }

  int rank() const { return rank_; }
  /// Of an axis, which may count from the end; IndexError.
  int64_t operator[](int64_t axis) const { return sizes_[place(axis)]; }
  int64_t& operator[](int64_t axis) { return sizes_[place(axis)]; }
  const int64_t* begin() const { return sizes_; }
  const int64_t* end() const { return sizes_ + rank_; }

  /// Product of all sizes; 1 for rank 0. ShapeError if it exceeds 2^63 - 1 or a size is negative.
  int64_t numel() const;

  void append(int64_t size);
  void insert(int axis, int64_t size);
  void erase(int axis);

  friend bool operator==(const Shape& a, const Shape& b) {
    bool equal = a.rank_ == b.rank_;
    for (int axis = 0; equal && axis < a.rank_; ++axis) equal = a.sizes_[axis] == b.sizes_[axis];
    return equal;
  }

 private:
  int64_t place(int64_t axis) const {
    const bool counts_from_start = static_cast<uint64_t>(axis) < static_cast<uint64_t>(rank_);
    return counts_from_start ? axis : place_from_end(axis);
  }
  int64_t place_from_end(int64_t axis) const;
  [[noreturn]] static void fail_rank(size_t rank);

  int rank_ = 0;
  int64_t sizes_[kMaxRank] = {};
};

/// "[2, 3]"
void append_text(std::string& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Strides, in elements, of a contiguous tensor.
Shape contiguous_strides(const Shape& shape);

/// The shape that both broadcast to, as in NumPy; ShapeError naming `operation`, both shapes and the axis.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* operation);

/// IndexError
[[noreturn]] void fail_axis(int64_t axis, int rank, const char* operation);

/// Axis in [0, rank) for one that may count from the end; IndexError with the valid range.
inline int normalize_axis(int64_t axis, int rank, const char* operation) {
  if (axis < -rank || axis >= rank) fail_axis(axis, rank, operation);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace heed
