// Padding, repeating and shifting.
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/copy.h>

namespace heed {
namespace {

// How much stands before and after an axis.
struct Margin {
  int64_t before = 0, after = 0;
};

// The part of `y` inside its margins.
Tensor inside(const Tensor& y, const std::vector<Margin>& margins) {
  Tensor part = y;
  for (int axis = 0; axis < y.rank(); ++axis) {
    const Margin& margin = margins[static_cast<size_t>(axis)];
    part = part.slice(axis, margin.before, y.shape()[axis] - margin.after);
  }
  return part;
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<int64_t>& amounts, double value) {
  HEED_CHECK(amounts.size() % 2 == 0 && amounts.size() <= 2 * static_cast<size_t>(x.rank()), ShapeError,
             "pad: ", amounts.size(), " amounts for a tensor of ", x.shape(),
             "; expected two for an axis, before and after, from the last axis on");
  check_scalar(value, x.dtype(), "pad");
  std::vector<Margin> margins(static_cast<size_t>(x.rank()));
  Shape shape = x.shape();
  Tensor kept = x;
  for (size_t i = 0; 2 * i < amounts.size(); ++i) {
    const int axis = x.rank() - 1 - static_cast<int>(i);
    const int64_t before = amounts[2 * i], after = amounts[2 * i + 1], size = x.shape()[axis];
    HEED_CHECK(before >= -size && after >= -size && before + size + after >= 0, ShapeError, "pad: ", before,
               " before and ", after, " after take more from axis ", axis, " of ", x.shape(), " than it has");
    margins[static_cast<size_t>(axis)] = {std::max<int64_t>(0, before), std::max<int64_t>(0, after)};
    shape[axis] = before + size + after;
    if (before < 0 || after < 0)
      kept = kept.slice(axis, std::max<int64_t>(0, -before), size + std::min<int64_t>(0, after));
  }
  const Tensor y = full(shape, value, x.options());
  copy_elements(inside(y, margins), kept);
  return record("pad", kept, y,
                [margins](const GradIn& gy, GradOut& gx) { gx.add(0, inside(gy[0], margins)); });
}

Tensor repeat(const Tensor& x, const std::vector<int64_t>& counts) {
  const int rank = static_cast<int>(counts.size()), added = rank - x.rank();
  HEED_CHECK(added >= 0 && rank <= kMaxRank, ShapeError, "repeat: ", rank, " counts for a tensor of ",
             x.shape(), "; expected one for each axis, those of new axes first");
  Tensor y = x;
  for (int axis = 0; axis < added; ++axis) y = y.unsqueeze(0);
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t count = counts[static_cast<size_t>(axis)], size = y.shape()[axis];
    HEED_CHECK(count >= 0, ShapeError, "repeat: a count is ", count, "; it must not be negative");
    if (count == 1) continue;
    // As three axes, since there may be kMaxRank already.
    Shape result = y.shape();
    result[axis] = count * size;
    int64_t outer = 1, inner = 1;
    for (int a = 0; a < rank; ++a) (a < axis ? outer : inner) *= y.shape()[a];
    y = y.reshape({outer, 1, inner}).expand({outer, count, inner}).reshape(result);
  }
  return y;
}

Tensor roll(const Tensor& x, int64_t shift, int64_t axis) {
  const int place = normalize_axis(axis, x.rank(), "roll");
  const int64_t size = x.shape()[place];
  const int64_t by = size == 0 ? 0 : (shift % size + size) % size;
  const Tensor y = empty_like(x);
  copy_elements(y.slice(place, by, size), x.detach().slice(place, 0, size - by));
  copy_elements(y.slice(place, 0, by), x.detach().slice(place, size - by, size));
  return record("roll", x, y,
                [by, place](const GradIn& gy, GradOut& gx) { gx.add(0, roll(gy[0], -by, place)); });
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t axis) {
  const int place = normalize_axis(axis, x.rank(), "split");
  int64_t total = 0;
  for (int64_t size : sizes) {
    HEED_CHECK(size >= 0, ShapeError, "split: a size is ", size, "; it must not be negative");
    HEED_CHECK(!__builtin_add_overflow(total, size, &total), ShapeError,
               "split: the sizes add up beyond 2^63");
  }
  HEED_CHECK(total == x.shape()[place], ShapeError, "split: the sizes add up to ", total, ", axis ", axis,
             " of ", x.shape(), " has ", x.shape()[place]);
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    parts.push_back(x.slice(place, begin, begin + size));
    begin += size;
  }
  return parts;
}

}  // namespace heed
