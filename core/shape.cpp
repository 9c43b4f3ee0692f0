#include <algorithm>
#include <ostream>

#include <heed/core/base/check.h>
#include <heed/core/shape.h>

namespace heed {
namespace {

// Product of any sizes. A 0 hides neither a negative size nor others that are too large.
int64_t checked_product(const Shape& shape) {
  int64_t product = 1;
  bool overflow = false;
  bool empty = false;
  for (int64_t size : shape) {
    HEED_CHECK(size >= 0, ShapeError, "negative size in shape ", shape);
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product);
  }
  HEED_CHECK(!overflow, ShapeError, "shape ", shape, " has more than 2^63 - 1 elements");
  return empty ? 0 : product;
}

}  // namespace

void Shape::fail_rank(size_t rank) {
  throw ShapeError(concat("a tensor has at most ", kMaxRank, " axes, got ", rank));
}

int64_t Shape::place_from_end(int64_t axis) const { return normalize_axis(axis, rank_, "shape"); }

int64_t Shape::numel() const {
  int64_t product = 1, signs = 0;
  bool overflow = false;
  for (int64_t size : *this) {
    signs |= size;
    overflow |= __builtin_mul_overflow(product, size, &product);
  }
  return overflow || signs < 0 || product == 0 ? checked_product(*this) : product;
}

void Shape::append(int64_t size) { insert(rank_, size); }

void Shape::insert(int axis, int64_t size) {
  HEED_CHECK(rank_ < kMaxRank, ShapeError, "a tensor has at most ", kMaxRank, " axes");
  HEED_ASSERT(axis >= 0 && axis <= rank_);
  std::copy_backward(sizes_ + axis, sizes_ + rank_, sizes_ + rank_ + 1);
  sizes_[axis] = size;
  ++rank_;
}

void Shape::erase(int axis) {
  HEED_ASSERT(axis >= 0 && axis < rank_);
  std::copy(sizes_ + axis + 1, sizes_ + rank_, sizes_ + axis);
  --rank_;
}

void append_text(std::string& out, const Shape& shape) {
  out += '[';
  for (int axis = 0; axis < shape.rank(); ++axis) out += concat(axis ? ", " : "", shape[axis]);
  out += ']';
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << concat(shape); }

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  const int64_t* const sizes = shape.begin();
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= std::max<int64_t>(sizes[axis], 1);
  }
  return strides;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* operation) {
  Shape result = a.rank() >= b.rank() ? a : b;
  for (int back = 1; back <= result.rank(); ++back) {
    const int64_t x = back <= a.rank() ? a[a.rank() - back] : 1;
    const int64_t y = back <= b.rank() ? b[b.rank() - back] : 1;
    HEED_CHECK(x == y || x == 1 || y == 1, ShapeError, operation, ": cannot broadcast ", a, " with ", b,
               ": axis -", back, " has ", x, " and ", y);
    result[result.rank() - back] = x == 1 ? y : x;
  }
  return result;
}

void fail_axis(int64_t axis, int rank, const char* operation) {
  throw IndexError(concat(operation, ": axis ", axis, " is not in [", -rank, ", ", rank - 1,
                          "] for a tensor of rank ", rank));
}

}  // namespace heed
