// Putting elements by index, and finding those that are not zero.
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/copy.h>
#include <heed/core/ops/indexing.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

using kernels::IndexUse;

DType scattered_dtype(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

Tensor zero_like(const Tensor& x) { return scalar(0, x.options()); }

/// Where and how a scatter puts what.
struct Call {
  IndexUse use;
  const char* operation;
  ScatterOp op;
  int axis;

  // x with source put at index. Not recorded.
  Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, ScatterOp how) const {
    const Tensor y = empty(x.shape(), {scattered_dtype(x.dtype()), x.device()});
    copy_elements(y, x);
    scatter_into(y, use, how, axis, index, source);
    return y.to(x.dtype());
  }
};

// Of several elements that are put in one place the last one stays, and has the gradient.
void replace_backward(const Call& call, const Tensor& index, const Tensor& gy, GradOut& gx) {
  const Tensor zero = zero_like(gy);
  if (gx.wants(0)) gx.add(0, call.put(gy, index, zero.expand(index.shape()), ScatterOp::replace));
  if (!gx.wants(1)) return;
  Shape along;
  for (int axis = 0; axis < index.rank(); ++axis) along.append(axis == call.axis ? -1 : 1);
  const Tensor number =
      arange(0, static_cast<double>(index.shape()[call.axis]), 1, {DType::i64, index.device()})
          .reshape(along)
          .expand(index.shape());
  const Tensor last =
      call.put(zeros(gy.shape(), {DType::i64, gy.device()}), index, number, ScatterOp::replace);
  gx.add(1, where(equal(gather(last, call.axis, index), number), gather(gy, call.axis, index), zero));
}

// Each factor has the product of the others: with one factor of zero in a place it alone has a gradient.
void multiply_backward(const Call& call, const Tensor& x, const Tensor& index, const Tensor& source,
                       const Tensor& gy, GradOut& gx) {
  const DType dtype = scattered_dtype(x.dtype());
  const Tensor a = x.to(dtype), b = source.to(dtype), g = gy.to(dtype);
  const Tensor zero = zero_like(a), one = scalar(1, a.options());
  const Tensor a_zero = equal(a, zero), b_zero = equal(b, zero);
  const Tensor a_rest = where(a_zero, one, a), b_rest = where(b_zero, one, b);
  const Tensor rest = g * call.put(a_rest, index, b_rest, ScatterOp::multiply);
  const Tensor count = call.put(a_zero.to(dtype), index, b_zero.to(dtype), ScatterOp::add);
  const Tensor of_zero = where(equal(count, one), rest, zero),
               of_others = where(equal(count, zero), rest, zero);
  if (gx.wants(0)) gx.add(0, where(a_zero, of_zero, of_others / a_rest).to(x.dtype()));
  if (gx.wants(1)) {
    const Tensor zeros = gather(of_zero, call.axis, index), others = gather(of_others, call.axis, index);
    gx.add(1, where(b_zero, zeros, others / b_rest).to(x.dtype()));
  }
}

// Equal extrema share the gradient.
void extremum_backward(const Call& call, const Tensor& x, const Tensor& index, const Tensor& source,
                       const Tensor& y, const Tensor& gy, GradOut& gx) {
  const Tensor zero = zero_like(gy), a = equal(x, y), b = equal(source, gather(y, call.axis, index));
  const Tensor ties = call.put(a.to(gy.dtype()), index, b.to(gy.dtype()), ScatterOp::add);
  const Tensor share = gy / ties;
  if (gx.wants(0)) gx.add(0, where(a, share, zero));
  if (gx.wants(1)) gx.add(1, where(b, gather(share, call.axis, index), zero));
}

Tensor scatter(const Call& call, const Tensor& x, const Tensor& index, const Tensor& source) {
  check_same_kind(x, source, call.operation);
  if (x.dtype() == DType::boolean) {
    HEED_CHECK(call.op == ScatterOp::replace, DTypeError, call.operation, ": not defined for bool");
    return call.put(x.to(DType::i32), index, source.to(DType::i32), call.op).to(DType::boolean);
  }
  const Tensor y = call.put(x, index, source, call.op);
  if (!is_floating(x.dtype())) return y;
  const Saved places = save(index);
  switch (call.op) {
    case ScatterOp::replace:
      return record(call.operation, {x, source}, y, [call, places](const GradIn& gy, GradOut& gx) {
        replace_backward(call, *places, gy[0], gx);
      });
    case ScatterOp::add:
      return record(call.operation, {x, source}, y, [call, places](const GradIn& gy, GradOut& gx) {
        if (gx.wants(0)) gx.add(0, gy[0]);
        if (gx.wants(1)) gx.add(1, gather(gy[0], call.axis, *places));
      });
    case ScatterOp::multiply:
      return record(call.operation, {x, source}, y,
                    [call, places, x = save(x), source = save(source)](const GradIn& gy, GradOut& gx) {
                      multiply_backward(call, *x, *places, *source, gy[0], gx);
                    });
    case ScatterOp::max:
    case ScatterOp::min:
      return record(
          call.operation, {x, source}, y,
          [call, places, x = save(x), source = save(source), y = save(y)](const GradIn& gy, GradOut& gx) {
            extremum_backward(call, *x, *places, *source, *y, gy[0], gx);
          });
  }
  return y;
}

Tensor scatter(IndexUse use, const char* operation, const Tensor& x, int64_t axis, const Tensor& index,
               const Tensor& source, ScatterOp op) {
  HEED_CHECK(op == ScatterOp::replace || x.dtype() != DType::boolean, DTypeError, operation,
             ": not defined for bool");
  check_same_kind(x, source, operation);
  HEED_CHECK(index.shape() == source.shape(), ShapeError, operation, ": the index is ", index.shape(),
             ", the source ", source.shape(), "; they need one shape");
  const int place = check_along_axis(x, axis, index, use, operation);
  return scatter(Call{use, operation, op, place}, x, index.contiguous(), source);
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source, ScatterOp op) {
  return scatter(IndexUse::scatter, "scatter", x, axis, index, source, op);
}

Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, double value, ScatterOp op) {
  check_scalar(value, x.dtype(), "scatter");
  return scatter(x, axis, index, scalar(value, x.options()).expand(index.shape()), op);
}

Tensor scatter_add(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source) {
  return scatter(IndexUse::scatter_add, "scatter_add", x, axis, index, source, ScatterOp::add);
}

// ---- whole elements of the leading axes

namespace {

constexpr const char* kIndexPut = "index_put";

// The shape of all indices together.
Shape check_put(const Tensor& x, const std::vector<Tensor>& indices) {
  const auto count = static_cast<int64_t>(indices.size());
  HEED_CHECK(count >= 1 && count <= x.rank(), ShapeError, kIndexPut, ": ", count, " indices for a tensor of ",
             x.shape(), "; expected one for each of its leading axes, 1 to ", x.rank());
  Shape shape;
  for (const Tensor& index : indices) {
    check_index_dtype(index, x, kIndexPut);
    shape = broadcast_shapes(shape, index.shape(), kIndexPut);
  }
  for (int axis = 0; axis < count; ++axis)
    check_indices(IndexUse::index_put, indices[static_cast<size_t>(axis)], x.shape()[axis]);
  return shape;
}

// The number of each chosen element, counted over the leading axes; their number where an index is outside
// its axis, which a device is the first to see.
Tensor flat_index(const Tensor& x, const std::vector<Tensor>& indices, const Shape& shape) {
  const TensorOptions options = indices[0].options();
  Tensor flat = zeros(shape, options), wrong = zeros(shape, {DType::boolean, options.device});
  const bool checked = backend(options.device).host_memory;
  int64_t entries = 1;
  for (size_t axis = 0; axis < indices.size(); ++axis) {
    const int64_t size = x.shape()[static_cast<int>(axis)];
    const Tensor first = scalar(0, options), end = scalar(static_cast<double>(size), options);
    flat = flat * static_cast<double>(size) + indices[axis];
    entries *= size;
    if (checked) continue;
    wrong = logical_or(wrong, logical_or(less(indices[axis], first), greater_equal(indices[axis], end)));
  }
  if (checked) return flat;
  return where(wrong, scalar(static_cast<double>(entries), options), flat);
}

}  // namespace

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) {
  const Shape places = check_put(x, indices);
  check_same_kind(x, values, kIndexPut);
  HEED_CHECK(!accumulate || x.dtype() != DType::boolean, DTypeError, kIndexPut,
             ": bool cannot be accumulated");
  const int leading = static_cast<int>(indices.size());
  int64_t entries = 1, width = 1;
  Shape wanted = places;
  for (int axis = 0; axis < x.rank(); ++axis) {
    (axis < leading ? entries : width) *= x.shape()[axis];
    if (axis >= leading) wanted.append(x.shape()[axis]);
  }
  HEED_CHECK(values.rank() <= wanted.rank() && broadcast_shapes(values.shape(), wanted, kIndexPut) == wanted,
             ShapeError, kIndexPut, ": values of shape ", values.shape(), " do not broadcast to ", wanted);
  const int64_t count = places.numel();
  const Tensor flat = flat_index(x, indices, places).contiguous();
  const Tensor index = make_view(flat, {count, width}, {1, 0}, flat.offset());
  const Call call{IndexUse::index_put, kIndexPut, accumulate ? ScatterOp::add : ScatterOp::replace, 0};
  return scatter(call, x.reshape({entries, width}), index, values.expand(wanted).reshape({count, width}))
      .reshape(x.shape());
}

// ---- where elements are not zero

namespace {

// The numbers, in row-major order, of what is true. Waits for a device.
Tensor true_places(const Tensor& mask) {
  const Tensor flat = mask.reshape({mask.numel()}), place = cumsum(flat.to(DType::i64), 0);
  const int64_t count = place.numel() == 0 ? 0 : place.select(0, -1).item<int64_t>();
  const Tensor y = empty({count}, place.options());
  HEED_DISPATCH(mask.device(), compact,
                kernels::Compact{.y = y.data<int64_t>(),
                                 .mask = flat.data<bool>(),
                                 .place = place.data<int64_t>(),
                                 .count = flat.numel()});
  return y;
}

}  // namespace

Tensor nonzero(const Tensor& x) {
  const Tensor value = x.detach();
  Tensor number = true_places(x.dtype() == DType::boolean ? value : not_equal(value, zero_like(value)));
  if (x.rank() == 0) return empty({number.numel(), 0}, number.options());
  std::vector<Tensor> coordinates(static_cast<size_t>(x.rank()));
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    const auto size = static_cast<double>(std::max<int64_t>(1, x.shape()[axis]));
    coordinates[static_cast<size_t>(axis)] = axis == 0 ? number : remainder(number, size);
    if (axis > 0) number = floor_divide(number, size);
  }
  return stack(coordinates, 1);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  HEED_CHECK(mask.dtype() == DType::boolean, DTypeError, "masked_select: the mask is ", mask.dtype(),
             ", expected bool; make one by comparing");
  HEED_CHECK(mask.device() == x.device(), DeviceError, "masked_select: the mask is on ", mask.device(),
             ", the tensor on ", x.device(), "; move one with to(Device)");
  const Shape shape = broadcast_shapes(x.shape(), mask.shape(), "masked_select");
  return index_select(x.expand(shape).reshape({shape.numel()}), true_places(mask.expand(shape)));
}

}  // namespace heed
