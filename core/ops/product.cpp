// Products over axes.
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>

namespace heed {
namespace {

// The product over the last axis, by halves: its gradient is made of products too, and so needs no division
// by elements that may be 0.
Tensor product_of_last(Tensor x) {
  Tensor rest;  // elements without a partner
  for (int64_t n = x.size(-1); n > 1; n = x.size(-1)) {
    if (n % 2 != 0) {
      const Tensor odd = x.slice(-1, n - 1, n);
      rest = rest.defined() ? rest * odd : odd;
    }
    x = x.slice(-1, 0, n / 2) * x.slice(-1, n / 2, n / 2 * 2);
  }
  return rest.defined() ? x * rest : x;
}

}  // namespace

Tensor prod(const Tensor& x, const ReduceOptions& options) {
  bool reduced[kMaxRank] = {};
  for (int64_t axis : options.axes.list()) {
    const int place = normalize_axis(axis, x.rank(), "prod");
    HEED_CHECK(!reduced[place], IndexError, "prod: axis ", axis, " comes twice");
    reduced[place] = true;
  }
  Shape order, lines, shape;
  int64_t count = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    reduced[axis] = reduced[axis] || options.axes.all();
    if (reduced[axis]) {
      count *= x.shape()[axis];
      if (options.keep) shape.append(1);
    } else {
      order.append(axis);
      lines.append(x.shape()[axis]);
      shape.append(x.shape()[axis]);
    }
  }
  for (int axis = 0; axis < x.rank(); ++axis)
    if (reduced[axis]) order.append(axis);
  const DType wide = is_floating(x.dtype()) ? accumulator_options(x).dtype : DType::i64;
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::i64;
  Tensor flat = x.to(wide).permute(order).reshape({lines.numel(), count});
  if (count == 0) flat = cat({flat, ones({lines.numel(), 1}, flat.options())}, 1);
  return product_of_last(flat).reshape(shape).to(dtype);
}

}  // namespace heed
