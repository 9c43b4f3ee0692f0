// Reductions, and the sums that undo a broadcast.
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/lines.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/reduce.h>

namespace heed {
namespace {

using kernels::ReduceOp;

// The axes of a tensor in two parts.
struct Axes {
  Shape kept, kept_strides, reduced, reduced_strides;
  Shape with_ones;    // the tensor's shape with size 1 for the axes that are reduced
  int64_t count = 1;  // elements that go into one result
};

Axes split_axes(const Tensor& x, const ReducedAxes& axes, const char* operation) {
  bool reduced[kMaxRank] = {};
  for (int64_t axis : axes.list()) {
    const int place = normalize_axis(axis, x.rank(), operation);
    HEED_CHECK(!reduced[place], IndexError, operation, ": axis ", axis, " comes twice");
    reduced[place] = true;
  }
  Axes parts;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const int64_t size = x.shape()[axis];
    if (axes.all() || reduced[axis]) {
      parts.reduced.append(size);
      parts.reduced_strides.append(x.strides()[axis]);
      parts.with_ones.append(1);
      parts.count *= size;
    } else {
      parts.kept.append(size);
      parts.kept_strides.append(x.strides()[axis]);
      parts.with_ones.append(size);
    }
  }
  return parts;
}

DType reduced_dtype(DType dtype) {
  if (dtype == DType::f64) return DType::f64;
  return is_floating(dtype) ? DType::f32 : DType::i64;
}

// The result with size 1 for the reduced axes, in the wider dtype of sums. Not recorded.
Tensor reduce(ReduceOp op, const Tensor& x, const Axes& axes, double scale = 1, const Tensor& centre = {}) {
  const Tensor y = empty(axes.kept, {reduced_dtype(x.dtype()), x.device()});
  visit_dtype(x.dtype(), [&]<class T>() {
    using R = kernels::reduced_t<T>;
    const Tensor kept = make_view(x, axes.kept, axes.kept_strides, x.offset());
    const Tensor reduced = make_view(x, axes.reduced, axes.reduced_strides, x.offset());
    HEED_DISPATCH(x.device(), reduce,
                  kernels::Reduce<T>{.op = op,
                                     .y = y.data<R>(),
                                     .x = x.data<T>(),
                                     .centre = data_or_null<R>(centre),
                                     .scale = scale,
                                     .kept = strided_index(axes.kept, y, kept),
                                     .reduced = strided_index(axes.reduced, reduced)});
  });
  return make_view(y, axes.with_ones, contiguous_strides(axes.with_ones), 0);
}

// A reduction's result as the caller wants it.
Tensor shaped(const Tensor& y, const Axes& axes, bool keep, DType dtype) {
  const Tensor converted = y.to(dtype);
  if (keep) return converted;
  return make_view(converted, axes.kept, contiguous_strides(axes.kept), 0);
}

}  // namespace

Tensor sum(const Tensor& x, const ReduceOptions& options) {
  const Axes axes = split_axes(x, options.axes, "sum");
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::i64;
  const Tensor y = shaped(reduce(ReduceOp::sum, x, axes), axes, options.keep, dtype);
  if (!is_floating(dtype)) return y;
  return record("sum", x, y, [shape = x.shape(), ones = axes.with_ones](const GradIn& gy, GradOut& gx) {
    gx.add(0, gy[0].reshape(ones).expand(shape));
  });
}

Tensor mean(const Tensor& x, const ReduceOptions& options) {
  check_floating(x, "mean");
  const Axes axes = split_axes(x, options.axes, "mean");
  const double scale = 1.0 / static_cast<double>(axes.count);
  const Tensor y = shaped(reduce(ReduceOp::sum, x, axes, scale), axes, options.keep, x.dtype());
  return record("mean", x, y,
                [shape = x.shape(), ones = axes.with_ones, scale](const GradIn& gy, GradOut& gx) {
                  gx.add(0, (gy[0].reshape(ones) * scale).expand(shape));
                });
}

Tensor variance(const Tensor& x, const ReduceOptions& options, int64_t correction) {
  check_floating(x, "variance");
  const Axes axes = split_axes(x, options.axes, "variance");
  const Tensor centre = reduce(ReduceOp::sum, x, axes, 1.0 / static_cast<double>(axes.count));
  const double scale = 1.0 / static_cast<double>(std::max<int64_t>(0, axes.count - correction));
  const Tensor y =
      shaped(reduce(ReduceOp::sum_squared_gap, x, axes, scale, centre), axes, options.keep, x.dtype());
  return record("variance", x, y,
                [x = save(x), centre, ones = axes.with_ones, scale](const GradIn& gy, GradOut& gx) {
                  const Tensor g = gy[0].to(centre.dtype()).reshape(ones) * (2 * scale);
                  gx.add(0, ((*x).to(centre.dtype()) - centre) * g);
                });
}

namespace {

Tensor extremum(ReduceOp op, const char* operation, const Tensor& x, const ReduceOptions& options) {
  HEED_CHECK(x.dtype() != DType::boolean, DTypeError, operation,
             ": not defined for bool; use any() or all()");
  const Axes axes = split_axes(x, options.axes, operation);
  HEED_CHECK(axes.count > 0, ShapeError, operation, ": no elements to choose from along the reduced axes of ",
             x.shape());
  const Tensor extreme = reduce(op, x, axes).to(x.dtype());
  const Tensor y = shaped(extreme, axes, options.keep, x.dtype());
  if (!is_floating(x.dtype())) return y;
  return record(operation, x, y,
                [x = save(x), extremes = save(extreme), axes = options.axes](const GradIn& gy, GradOut& gx) {
                  const Tensor from = *x, extreme = *extremes;
                  const Tensor mask = logical_or(equal(from, extreme), is_nan(from));  // NaN equals nothing
                  const Tensor ties = sum(mask, {.axes = axes, .keep = true});
                  const Tensor share = gy[0].reshape(extreme.shape()) / ties.to(extreme.dtype());
                  gx.add(0, where(mask, share, scalar(0, extreme.options())));
                });
}

Tensor quantifier(ReduceOp op, const char* operation, const Tensor& x, const ReduceOptions& options) {
  HEED_CHECK(x.dtype() == DType::boolean, DTypeError, operation, ": needs a bool tensor, got ", x.dtype(),
             "; make one by comparing");
  const Axes axes = split_axes(x, options.axes, operation);
  return shaped(reduce(op, x, axes), axes, options.keep, DType::boolean);
}

}  // namespace

Tensor max(const Tensor& x, const ReduceOptions& options) {
  return extremum(ReduceOp::maximum, "max", x, options);
}
Tensor min(const Tensor& x, const ReduceOptions& options) {
  return extremum(ReduceOp::minimum, "min", x, options);
}
Tensor any(const Tensor& x, const ReduceOptions& options) {
  return quantifier(ReduceOp::maximum, "any", x, options);
}
Tensor all(const Tensor& x, const ReduceOptions& options) {
  return quantifier(ReduceOp::minimum, "all", x, options);
}

Tensor norm(const Tensor& x, const ReduceOptions& options) {
  check_floating(x, "norm");
  const Axes axes = split_axes(x, options.axes, "norm");
  const Tensor length = reduce(ReduceOp::norm, x, axes);
  return record("norm", x, shaped(length, axes, options.keep, x.dtype()),
                [x = save(x), lengths = save(length)](const GradIn& gy, GradOut& gx) {
                  const Tensor length = *lengths, is_zero = equal(length, 0);
                  const Tensor g = gy[0].to(length.dtype()).reshape(length.shape());
                  // Not x * (g / length), which is infinite for small lengths.
                  const Tensor direction = (*x).to(length.dtype()) / where(is_zero, 1, length);
                  gx.add(0, direction * where(is_zero, 0, g));
                });
}

Tensor logsumexp(const Tensor& x, const ReduceOptions& options) {
  check_floating(x, "logsumexp");
  const Axes axes = split_axes(x, options.axes, "logsumexp");
  const Tensor largest = reduce(ReduceOp::maximum, x, axes), zero = scalar(0, largest.options());
  const Tensor centre = where(is_finite(largest), largest, zero);
  const Tensor total = reduce(ReduceOp::sum_exponential, x, axes, 1, centre);
  const Tensor y = shaped(centre + log(total), axes, options.keep, x.dtype());
  // Through the largest and the sum, not through y: a large y has lost digits that exp() would miss.
  return record("logsumexp", x, y, [x = save(x), centre, total, zero](const GradIn& gy, GradOut& gx) {
    const Tensor g = gy[0].to(total.dtype()).reshape(total.shape());
    const Tensor share = where(equal(total, zero), zero, g / total);
    gx.add(0, exp((*x).to(total.dtype()) - centre) * share);
  });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int added = x.rank() - shape.rank();
  HEED_CHECK(added >= 0 && broadcast_shapes(shape, x.shape(), "sum_to") == x.shape(), ShapeError,
             "sum_to: ", shape, " does not broadcast to ", x.shape());
  std::vector<int64_t> axes;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (axis < added || (shape[axis - added] == 1 && x.shape()[axis] != 1)) axes.push_back(axis);
  return sum(x, {.axes = axes}).reshape(shape);
}

// ---- along one axis

namespace {

Tensor arg_extremum(bool largest, const char* operation, const Tensor& x, int64_t axis, bool keep) {
  HEED_CHECK(x.dtype() != DType::boolean, DTypeError, operation, ": not defined for bool");
  const int place = normalize_axis(axis, x.rank(), operation);
  HEED_CHECK(x.shape()[place] > 0, ShapeError, operation, ": axis ", axis, " of ", x.shape(), " is empty");
  Shape shape = x.shape();
  shape[place] = 1;
  const Tensor y = empty(shape, {DType::i64, x.device()});
  visit_dtype(x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      HEED_DISPATCH(x.device(), arg_reduce,
                    kernels::ArgReduce<T>{.largest = largest,
                                          .y = y.data<int64_t>(),
                                          .x = x.data<T>(),
                                          .lines = lines_along(place, shape, y, x),
                                          .n = x.shape()[place],
                                          .stride = x.strides()[place]});
  });
  return keep ? y : y.squeeze(place);
}

void cumsum(const Tensor& y, const Tensor& x, int axis, bool reverse, bool accumulate) {
  visit_dtype(x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      HEED_DISPATCH(x.device(), cumsum,
                    kernels::CumSum<T>{.y = y.data<T>(),
                                       .x = x.data<T>(),
                                       .lines = lines_along(axis, x.shape(), y, x),
                                       .n = x.shape()[axis],
                                       .stride_y = y.strides()[axis],
                                       .stride_x = x.strides()[axis],
                                       .reverse = reverse,
                                       .accumulate = accumulate});
  });
}

}  // namespace

Tensor argmax(const Tensor& x, int64_t axis, bool keep) {
  return arg_extremum(true, "argmax", x, axis, keep);
}
Tensor argmin(const Tensor& x, int64_t axis, bool keep) {
  return arg_extremum(false, "argmin", x, axis, keep);
}

Tensor cumsum(const Tensor& x, int64_t axis) {
  HEED_CHECK(x.dtype() != DType::boolean, DTypeError, "cumsum: not defined for bool");
  const int place = normalize_axis(axis, x.rank(), "cumsum");
  const Tensor y = empty_like(x);
  cumsum(y, x, place, false, false);
  if (!is_floating(x.dtype())) return y;
  return record("cumsum", x, y, [place](const GradIn& gy, GradOut& gx) {
    const GradSlot slot = gx.into(0);
    cumsum(slot.tensor, gy[0], place, true, slot.accumulate);
  });
}

}  // namespace heed
