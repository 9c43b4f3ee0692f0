#include <heed/core/autograd/leaf_node.h>
#include <heed/core/int8_weight.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/layers/int8.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

using kernels::Int8Matrix;

void check_values(const Tensor& x, const char* what) {
  HEED_CHECK(x.rank() == 2 && x.size(1) <= Int8Matrix::kMaxCols, ShapeError, "keep_as_int8: the ", what,
             " is ", x.shape(), "; expected a matrix of at most ", Int8Matrix::kMaxCols, " columns");
  HEED_CHECK(x.dtype() == DType::f32, DTypeError, "keep_as_int8: the ", what, " is ", x.dtype(),
             "; expected f32");
  HEED_CHECK(x.device() == kCpu, DeviceError, "keep_as_int8: the ", what, " is on ", x.device(),
             "; weights of 8-bit integers are for the CPU alone");
}

const Int8Matrix& int8_matrix(const Tensor& x, const char* operation) {
  const Int8Matrix* const matrix = x.storage()->int8();
  HEED_CHECK(matrix, StateError, operation, ": the values of the matrix are not kept as 8-bit integers");
  return *matrix;
}

}  // namespace

void keep_as_int8(const Tensor& parameter, const Tensor& values) {
  check_values(parameter, "parameter");
  check_values(values, "matrix of its values");
  HEED_CHECK(parameter.shape() == values.shape(), ShapeError, "keep_as_int8: values ", values.shape(),
             " for a parameter of ", parameter.shape());
  LeafNode* const leaf = leaf_node(parameter);
  HEED_CHECK(leaf && !leaf->held(), StateError,
             "keep_as_int8: ", leaf ? "an optimizer holds the parameter" : "the tensor is no parameter");
  Int8Matrix matrix{nullptr, values.size(0), values.size(1)};
  const RefPtr<Storage> memory = make_ref<Storage>(kCpu, matrix.bytes());
  const Contiguous from(values);
  HEED_DISPATCH(kCpu, int8_pack,
                kernels::Int8Pack{.values = from->data<float>(), .matrix = matrix, .data = memory->data()});
  matrix.data = memory->data();
  parameter.set_requires_grad(false);
  TensorImpl& impl = parameter.impl();
  impl.storage = make_ref<Storage>(memory, matrix);
  impl.strides = contiguous_strides(impl.shape);
  impl.offset = 0;
  impl.contiguous = true;
  leaf->bind(DType::f32, kCpu, DType::f32);
}

Tensor int8_rows(const Tensor& matrix, const Tensor& ids) {
  const Int8Matrix& m = int8_matrix(matrix, "int8_rows");
  HEED_CHECK(ids.dtype() == DType::i64 && ids.device() == kCpu, DTypeError, "int8_rows: ids are ",
             ids.dtype(), " on ", ids.device(), "; expected i64 on the CPU");
  HEED_CHECK(ids.rank() == 1, ShapeError, "int8_rows: ids are ", ids.shape(), ", expected [n]");
  const Contiguous rows(ids);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = rows->data<int64_t>()[i];
    HEED_CHECK(id >= 0 && id < m.rows, IndexError, "int8_rows: there is no row ", id, " among ", m.rows);
  }
  const Tensor y = empty({ids.numel(), m.cols});
  HEED_DISPATCH(kCpu, int8_rows,
                kernels::Int8Rows{
                    .matrix = m, .ids = rows->data<int64_t>(), .count = ids.numel(), .y = y.data<float>()});
  return y;
}

namespace detail {

Tensor int8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options) {
  const Int8Matrix& matrix = int8_matrix(weight, "linear");
  const int64_t rows = rows_and_cols(x, "linear").first, out = weight.size(0);
  HEED_CHECK(x.size(-1) == weight.size(1), ShapeError, "linear: weight is ", weight.shape(),
             ", expected [out, ", x.size(-1), "] for an input of ", x.shape());
  check_same_kind(x, weight, "linear");
  check_parameter(bias, "bias", {out}, x, "linear");
  HEED_CHECK(!needs_grad({x, bias}), StateError,
             "linear: a weight of 8-bit integers is for inference; hold a NoGrad");
  HEED_CHECK(weight.is_contiguous() && weight.size(1) == matrix.cols, StateError,
             "linear: of a weight of 8-bit integers only whole rows can be taken");
  const Contiguous input(x), shift(bias);
  Shape shape = x.shape();
  shape[x.rank() - 1] = out;
  const Tensor y = empty(shape, x.options());
  HEED_DISPATCH(x.device(), int8_linear,
                kernels::Int8Linear{.x = input->data<float>(),
                                    .matrix = matrix,
                                    .first = matrix.cols > 0 ? weight.offset() / matrix.cols : 0,
                                    .out = out,
                                    .bias = data_or_null<float>(*shift),
                                    .y = y.data<float>(),
                                    .rows = rows});
  return dropout(activation(y, options.activation), {.p = options.dropout, .generator = options.generator});
}

}  // namespace detail
}  // namespace heed
