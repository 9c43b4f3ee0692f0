// Choosing elements by index, and the triangles of matrices.
#include <atomic>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/copy.h>
#include <heed/core/ops/indexing.h>
#include <heed/core/ops/lines.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/indexing.h>

namespace heed {
namespace {

using kernels::IndexUse;

constexpr int64_t kIndicesPerTask = 16384;

}  // namespace

void check_indices(IndexUse use, const Tensor& index, int64_t entries) {
  if (!backend(index.device()).host_memory) return;
  const Tensor host = index.contiguous();
  const int64_t* values = host.data<int64_t>();
  const int64_t lowest = use == IndexUse::index_select ? kNoToken : 0;
  std::atomic<bool> wrong = false;
  parallel_for(host.numel(), kIndicesPerTask, [&](int64_t begin, int64_t end) {
    uint64_t outside = 0;  // its sign is that of a gap below zero
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t value = static_cast<uint64_t>(values[i]);
      outside |= (value - static_cast<uint64_t>(lowest)) | (static_cast<uint64_t>(entries - 1) - value);
    }
    if (outside >> 63) wrong = true;
  });
  for (int64_t i = 0; wrong && i < host.numel(); ++i)
    if (use != IndexUse::index_select || values[i] != kNoToken)
      kernels::check_index(use, values[i], i, entries);
}

void check_index_dtype(const Tensor& index, const Tensor& x, const char* operation) {
  HEED_CHECK(index.dtype() == DType::i64, DTypeError, operation, ": the index is ", index.dtype(),
             ", expected i64; convert it with to(DType::i64)");
  HEED_CHECK(index.device() == x.device(), DeviceError, operation, ": the index is on ", index.device(),
             ", the tensor on ", x.device(), "; move one with to(Device)");
}

int check_along_axis(const Tensor& x, int64_t axis, const Tensor& index, IndexUse use,
                     const char* operation) {
  const int place = normalize_axis(axis, x.rank(), operation);
  check_index_dtype(index, x, operation);
  bool fits = index.rank() == x.rank();
  for (int a = 0; fits && a < x.rank(); ++a) fits = a == place || index.shape()[a] <= x.shape()[a];
  HEED_CHECK(fits, ShapeError, operation, ": an index of shape ", index.shape(), " for a tensor of ",
             x.shape(), " along axis ", axis,
             "; it needs the same rank and no larger sizes on the other axes");
  check_indices(use, index, x.shape()[place]);
  return place;
}

namespace {

// `x` cut to the sizes of `index`, but for the axis: the elements that gather reaches. Not recorded.
Tensor cut_to(const Tensor& x, const Tensor& index, int axis) {
  Shape shape = index.shape();
  shape[axis] = x.shape()[axis];
  return make_view(x, shape, x.strides(), x.offset());
}

// x[…, index, …], where index has the rank of x. Recorded.
Tensor gathered(IndexUse use, const char* operation, const Tensor& x, int axis, const Tensor& index) {
  const Tensor y = empty(index.shape(), x.options());
  const Tensor lines = without_axis(cut_to(x, index, axis), axis).unsqueeze(axis);
  visit_dtype(x.dtype(), [&]<class T>() {
    HEED_DISPATCH(x.device(), gather,
                  kernels::Gather<T>{.use = use,
                                     .y = y.data<T>(),
                                     .index = index.data<int64_t>(),
                                     .x = x.data<T>(),
                                     .space = strided_index(y.shape(), y, index, lines),
                                     .entries = x.shape()[axis],
                                     .stride_x = x.strides()[axis]});
  });
  return record(operation, x, y, [use, axis, index = save(index)](const GradIn& gy, GradOut& gx) {
    scatter_gradient(gx, use, axis, *index, gy[0]);
  });
}

}  // namespace

void scatter_into(const Tensor& y, IndexUse use, ScatterOp op, int axis, const Tensor& index,
                  const Tensor& source) {
  const Tensor target = cut_to(y, index, axis);
  visit_dtype(source.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      HEED_DISPATCH(y.device(), scatter,
                    kernels::Scatter<T>{.use = use,
                                        .op = op,
                                        .y = target.data<math_t<T>>(),
                                        .index = index.data<int64_t>(),
                                        .source = source.data<T>(),
                                        .lines = lines_along(axis, index.shape(), target, index, source),
                                        .n = index.shape()[axis],
                                        .entries = y.shape()[axis],
                                        .stride_y = target.strides()[axis],
                                        .stride_index = index.strides()[axis],
                                        .stride_source = source.strides()[axis]});
  });
}

void scatter_gradient(GradOut& gx, IndexUse use, int axis, const Tensor& index, const Tensor& gy) {
  const GradSlot slot = gx.into_accumulator(0);
  if (!slot.accumulate) slot.tensor.zero_();
  scatter_into(slot.tensor, use, ScatterOp::add, axis, index, gy);
}

Tensor gather(const Tensor& x, int64_t axis, const Tensor& index) {
  return gather(IndexUse::gather, "gather", x, axis, index);
}

Tensor gather(IndexUse use, const char* operation, const Tensor& x, int64_t axis, const Tensor& index) {
  return gathered(use, operation, x, check_along_axis(x, axis, index, use, operation), index);
}

Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index) {
  const int place = normalize_axis(axis, x.rank(), "index_select");
  HEED_CHECK(index.rank() == 1, ShapeError, "index_select: the index is ", index.shape(),
             "; along an axis it needs one axis");
  if (place == 0) return index_select(x, index);
  check_index_dtype(index, x, "index_select");
  check_indices(IndexUse::index_select, index, x.shape()[place]);
  Shape shape = x.shape(), strides;
  shape[place] = index.numel();
  for (int a = 0; a < x.rank(); ++a) strides.append(a == place ? index.strides()[0] : 0);
  return gathered(IndexUse::index_select, "index_select", x, place,
                  make_view(index, shape, strides, index.offset()));
}

Tensor index_select(const Tensor& x, const Tensor& index) {
  HEED_CHECK(x.rank() > 0, ShapeError, "index_select: needs at least one axis, got a tensor of rank 0");
  check_index_dtype(index, x, "index_select");
  check_indices(IndexUse::index_select, index, x.shape()[0]);
  Shape shape = index.shape();
  for (int axis = 1; axis < x.rank(); ++axis) shape.append(x.shape()[axis]);
  const Tensor rows = x.detach().contiguous(), places = index.contiguous();
  const Tensor y = empty(shape, x.options());
  const int64_t count = index.numel(), width = count > 0 ? y.numel() / count : 0;
  visit_dtype(x.dtype(), [&]<class T>() {
    HEED_DISPATCH(x.device(), index_select,
                  kernels::IndexSelect<T>{.y = y.data<T>(),
                                          .x = rows.data<T>(),
                                          .index = places.data<int64_t>(),
                                          .count = count,
                                          .width = width,
                                          .rows = x.shape()[0]});
  });
  return record(
      "index_select", x, y,
      [places = save(places), count, width, table_rows = x.shape()[0]](const GradIn& gy, GradOut& gx) {
        const GradSlot slot = gx.into_accumulator(0);
        if (!slot.accumulate) slot.tensor.zero_();
        const Tensor g = gy[0].contiguous(), index = *places;
        visit_floating(g.dtype(), "index_select", [&]<class T>() {
          HEED_DISPATCH(g.device(), index_select_backward,
                        kernels::IndexSelectBackward<T>{.gx = slot.tensor.data<math_t<T>>(),
                                                        .gy = g.data<T>(),
                                                        .index = index.data<int64_t>(),
                                                        .count = count,
                                                        .width = width,
                                                        .rows = table_rows});
        });
      });
}

Tensor one_hot(const Tensor& ids, int64_t classes, DType dtype) {
  HEED_CHECK(classes > 0, ConfigError, "one_hot: classes is ", classes, "; it must be at least 1");
  check_index_dtype(ids, ids, "one_hot");
  check_indices(IndexUse::one_hot, ids, classes);
  Shape shape = ids.shape();
  shape.append(classes);
  const Tensor y = empty(shape, {dtype, ids.device()}), places = ids.contiguous();
  visit_dtype(dtype, [&]<class T>() {
    HEED_DISPATCH(
        ids.device(), one_hot,
        kernels::OneHot<T>{
            .y = y.data<T>(), .ids = places.data<int64_t>(), .count = places.numel(), .classes = classes});
  });
  return y;
}

// ---- order

namespace {

std::pair<Tensor, Tensor> first_in_order(const char* operation, const Tensor& x, int axis, int64_t k,
                                         bool descending) {
  HEED_CHECK(x.dtype() != DType::boolean, DTypeError, operation, ": not defined for bool");
  Shape shape = x.shape();
  shape[axis] = k;
  const Tensor values = empty(shape, x.options()), indices = empty(shape, {DType::i64, x.device()});
  visit_dtype(x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      HEED_DISPATCH(x.device(), sort,
                    kernels::Sort<T>{.values = values.data<T>(),
                                     .indices = indices.data<int64_t>(),
                                     .x = x.data<T>(),
                                     .lines = lines_along(axis, shape, values, indices, x),
                                     .n = x.shape()[axis],
                                     .k = k,
                                     .stride_values = values.strides()[axis],
                                     .stride_indices = indices.strides()[axis],
                                     .stride_x = x.strides()[axis],
                                     .descending = descending});
  });
  record(operation, x, values, [axis, indices = save(indices)](const GradIn& gy, GradOut& gx) {
    scatter_gradient(gx, IndexUse::gather, axis, *indices, gy[0]);
  });
  return {values, indices};
}

}  // namespace

std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t axis) {
  const int place = normalize_axis(axis, x.rank(), "topk");
  HEED_CHECK(k >= 0 && k <= x.shape()[place], ShapeError, "topk: k is ", k, ", axis ", axis, " of ",
             x.shape(), " has ", x.shape()[place]);
  return first_in_order("topk", x, place, k, true);
}

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t axis, bool descending) {
  const int place = normalize_axis(axis, x.rank(), "sort");
  return first_in_order("sort", x, place, x.shape()[place], descending);
}

// ---- triangles

namespace {

Tensor triangle(const char* operation, const Tensor& x, int64_t diagonal, bool lower) {
  HEED_CHECK(x.rank() >= 2, ShapeError, operation, ": needs a matrix or a batch of them, got ", x.shape());
  const Tensor input = x.detach().contiguous(), y = empty(x.shape(), x.options());
  const int64_t rows = x.size(-2), cols = x.size(-1);
  visit_dtype(x.dtype(), [&]<class T>() {
    HEED_DISPATCH(x.device(), triangle,
                  kernels::Triangle<T>{.y = y.data<T>(),
                                       .x = input.data<T>(),
                                       .matrices = x.numel() == 0 ? 0 : x.numel() / (rows * cols),
                                       .rows = rows,
                                       .cols = cols,
                                       .diagonal = diagonal,
                                       .lower = lower});
  });
  return record(operation, x, y, [operation, diagonal, lower](const GradIn& gy, GradOut& gx) {
    gx.add(0, triangle(operation, gy[0], diagonal, lower));
  });
}

}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal) { return triangle("tril", x, diagonal, true); }
Tensor triu(const Tensor& x, int64_t diagonal) { return triangle("triu", x, diagonal, false); }

}  // namespace heed
