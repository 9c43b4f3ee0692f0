// Matrix products over the last two axes, with broadcast leading axes.
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/strided_index.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>
#include <heed/kernels/gemm.h>

namespace heed {
namespace {

// The last two axes of a tensor as gemm reads them.
struct Matrices {
  Tensor tensor;
  bool transposed;
  int64_t leading;
};

Matrices as_matrices(const Tensor& x) {
  const int64_t rows = x.size(-2), cols = x.size(-1);
  const int64_t down = x.strides()[x.rank() - 2], right = x.strides()[x.rank() - 1];
  if ((right == 1 || cols == 1) && (down >= cols || rows == 1)) return {x, false, rows == 1 ? cols : down};
  if ((down == 1 || rows == 1) && (right >= rows || cols == 1)) return {x, true, cols == 1 ? rows : right};
  return {x.contiguous(), false, cols};
}

// All axes but the last two.
Tensor batch_of(const Tensor& x) {
  Shape shape = x.shape(), strides = x.strides();
  for (int i = 0; i < 2; ++i) {
    shape.erase(shape.rank() - 1);
    strides.erase(strides.rank() - 1);
  }
  return make_view(x, shape, strides, x.offset());
}

template <class T, class C>
void gemm_batch(const Tensor& c, const Matrices& a, const Matrices& b, const Strided<3>& batch,
                bool accumulate) {
  // One axis of the batch goes to gemm: the innermost along which the results differ. Along the others we
  // walk; results that come again are added up.
  int inner = batch.rank - 1;
  while (inner >= 0 && batch.strides[0][inner] == 0) --inner;
  int64_t place[kMaxRank] = {};
  for (bool more = true; more;) {
    int64_t at[3] = {};
    bool again = accumulate;
    for (int axis = 0; axis < batch.rank; ++axis) {
      for (int k = 0; k < 3; ++k) at[k] += place[axis] * batch.strides[k][axis];
      again |= batch.strides[0][axis] == 0 && place[axis] > 0;
    }
    HEED_DISPATCH(c.device(), gemm,
                  kernels::Gemm<T, C>{.a = a.tensor.data<T>() + at[1],
                                      .b = b.tensor.data<T>() + at[2],
                                      .c = c.data<C>() + at[0],
                                      .m = c.size(-2),
                                      .n = c.size(-1),
                                      .k = a.tensor.size(-1),
                                      .lda = a.leading,
                                      .ldb = b.leading,
                                      .ldc = c.size(-1),
                                      .transpose_a = a.transposed,
                                      .transpose_b = b.transposed,
                                      .batch = inner < 0 ? 1 : batch.sizes[inner],
                                      .stride_a = inner < 0 ? 0 : batch.strides[1][inner],
                                      .stride_b = inner < 0 ? 0 : batch.strides[2][inner],
                                      .stride_c = inner < 0 ? 0 : batch.strides[0][inner],
                                      .alpha = 1,
                                      .accumulate = again});
    more = false;
    for (int axis = batch.rank - 1; axis >= 0 && !more; --axis) {
      if (axis == inner) continue;
      more = ++place[axis] < batch.sizes[axis];
      if (!more) place[axis] = 0;
    }
  }
}

// c = a b, or c += a b. The batch axes of each broadcast to `batch`; c, contiguous, receives the sum over
// those that it lacks.
void multiply_into(const Tensor& c, const Tensor& a, const Tensor& b, const Shape& batch, bool accumulate) {
  if (c.numel() == 0) return;
  const Matrices left = as_matrices(a), right = as_matrices(b);
  const Strided<3> index = strided_index(batch, batch_of(c), batch_of(left.tensor), batch_of(right.tensor));
  if (index.count() == 0) {
    if (!accumulate) c.zero_();
    return;
  }
  visit_floating(a.dtype(), "matmul", [&]<class T>() {
    if (c.dtype() == a.dtype())
      gemm_batch<T, T>(c, left, right, index, accumulate);
    else if constexpr (std::is_same_v<T, bfloat16>)
      gemm_batch<T, float>(c, left, right, index, accumulate);
  });
}

Shape batch_shape(const Tensor& x) { return batch_of(x).shape(); }

Tensor reshaped_slot(const Tensor& slot, const Shape& shape) {
  return make_view(slot, shape, contiguous_strides(shape), slot.offset());
}

// The slot of input i seen as [.., rows, cols]; sums over a batch are kept in the accumulator's dtype.
GradSlot matrix_slot(GradOut& gx, int i, const Shape& shape, const Shape& batch) {
  Shape own = shape;
  own.erase(own.rank() - 1);
  own.erase(own.rank() - 1);
  GradSlot slot = own == batch ? gx.into(i) : gx.into_accumulator(i);
  slot.tensor = reshaped_slot(slot.tensor, shape);
  return slot;
}

void check_operands(const Tensor& a, const Tensor& b) {
  check_same_kind(a, b, "matmul");
  check_floating(a, "matmul");
  HEED_CHECK(a.rank() > 0 && b.rank() > 0, ShapeError, "matmul: operands of shape ", a.shape(), " and ",
             b.shape(), "; each needs at least one axis, multiply with * instead");
  const int64_t inner_b = b.size(b.rank() == 1 ? 0 : -2);
  HEED_CHECK(a.size(-1) == inner_b, ShapeError, "matmul: ", a.shape(), " times ", b.shape(),
             ": axis -1 of the left has ", a.size(-1), ", axis ", b.rank() == 1 ? -1 : -2, " of the right ",
             inner_b, "; they must be equal");
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_operands(a, b);
  Tensor left = a.detach(), right = b.detach();
  if (left.rank() == 1) left = left.unsqueeze(0);
  if (right.rank() == 1) right = right.unsqueeze(1);
  Shape batch = broadcast_shapes(batch_shape(left), batch_shape(right), "matmul");
  Shape shape = batch;  // of the result
  if (a.rank() > 1) shape.append(left.size(-2));
  if (b.rank() > 1) shape.append(right.size(-1));
  if (right.rank() == 2 && left.rank() > 2) {  // one product of all rows
    left = left.reshape({batch.numel() * left.size(-2), left.size(-1)});
    batch = {};
  }

  Shape product = batch;
  product.append(left.size(-2));
  product.append(right.size(-1));
  const Tensor y = empty(shape, a.options());
  multiply_into(reshaped_slot(y, product), left, right, batch, false);
  return record("matmul", {a, b}, y,
                [left = save(left), right = save(right), product, batch](const GradIn& gy, GradOut& gx) {
                  const Tensor g = gy[0].reshape(product), x = *left, w = *right;
                  if (gx.wants(0)) {
                    const GradSlot slot = matrix_slot(gx, 0, x.shape(), batch);
                    multiply_into(slot.tensor, g, w.transpose(-2, -1), batch, slot.accumulate);
                  }
                  if (gx.wants(1)) {
                    const GradSlot slot = matrix_slot(gx, 1, w.shape(), batch);
                    multiply_into(slot.tensor, x.transpose(-2, -1), g, batch, slot.accumulate);
                  }
                });
}

}  // namespace heed
