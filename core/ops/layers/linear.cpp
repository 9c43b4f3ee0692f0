#include <utility>

#include <heed/core/autograd/backward_run.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/core/ops/layers/dropout_option.h>
#include <heed/core/ops/layers/int8.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/linear.h>

namespace heed {
namespace {

struct LinearCall {
  Saved x, weight;   // each only if the gradient of the other is wanted
  Saved saved = {};  // y after relu, what went into another activation; undefined without one
  Activation activation = Activation::none;
  Dropout dropout = {};
  int64_t rows, in, out;
};

// Whether the gradients of the weight and the bias are such that others wait for each other to be computed at
// once; whether these may wait shows when their memory is there.
bool is_for_many(const LinearCall& call, const GradOut& gx, Device device, DType dtype) {
  return gx.wants(1) && kernels::is_small_weight(call.rows, call.in, call.out) &&
         detail::has_kernel<kernels::WeightProducts>(device, dtype);
}

template <class T>
void backward(LinearCall& call, const GradIn& gy, GradOut& gx) {
  using A = accumulator_t<T>;
  Tensor g = gy[0].to(dtype_of<T>()).contiguous();
  const bool for_many = is_for_many(call, gx, g.device(), g.dtype());
  const GradSlot to_bias = accumulator_if_wanted(gx, 2);
  A* gbias = data_or_null<A>(to_bias.tensor);
  if (call.activation != Activation::none || call.dropout.active()) {
    const Tensor gpre = gy.owned(0) ? g : empty_like(g);
    const Tensor saved = *call.saved;
    HEED_DISPATCH(
        g.device(), linear_activation_backward,
        kernels::LinearActivationBackward<T>{.gy = g.data<T>(),
                                             .saved = data_or_null<T>(saved),
                                             .activation = call.activation,
                                             .dropout = call.dropout,
                                             .gpre = gpre.data<T>(),
                                             .gbias = for_many ? nullptr : std::exchange(gbias, nullptr),
                                             .accumulate_bias = to_bias.accumulate,
                                             .rows = call.rows,
                                             .out = call.out});
    if (gy.last()) call.saved = {};  // before the products ask for memory
    g = gpre;
  }
  const Tensor x = *call.x, weight = *call.weight;
  const GradSlot to_weight = accumulator_if_wanted(gx, 1), to_x = slot_if_wanted(gx, 0);
  A* gweight = data_or_null<A>(to_weight.tensor);
  if (for_many && gx.may_wait(1) && (gbias == nullptr || gx.may_wait(2))) {
    BackwardRun::current()->put_off({g, x, to_weight, to_bias, call.rows, call.in, call.out});
    gweight = gbias = nullptr;
  }
  HEED_DISPATCH(g.device(), linear_backward,
                kernels::LinearBackward<T>{.g = g.data<T>(),
                                           .gbias = gbias,
                                           .accumulate_bias = to_bias.accumulate,
                                           .x = data_or_null<T>(x),
                                           .gweight = gweight,
                                           .accumulate_weight = to_weight.accumulate,
                                           .weight = data_or_null<T>(weight),
                                           .gx = data_or_null<T>(to_x.tensor),
                                           .accumulate_x = to_x.accumulate,
                                           .rows = call.rows,
                                           .in = call.in,
                                           .out = call.out});
}

// x weightᵀ of bf16 as it was summed, in f32.
Tensor wide_product(const Tensor& x, const Tensor& weight, int64_t rows, int64_t in, int64_t out) {
  const Contiguous input(x), matrix(weight);
  Shape shape = x.shape();
  shape[x.rank() - 1] = out;
  const Tensor y = empty(shape, accumulator_options(x));
  HEED_DISPATCH(x.device(), gemm,
                kernels::Gemm<bfloat16, float>{.a = input->data<bfloat16>(),
                                               .b = matrix->data<bfloat16>(),
                                               .c = y.data<float>(),
                                               .m = rows,
                                               .n = out,
                                               .k = in,
                                               .lda = in,
                                               .ldb = in,
                                               .ldc = out,
                                               .transpose_b = true});
  if (!needs_grad({x, weight})) return y;
  return record("linear", {x, weight, /*bias=*/Tensor()}, y,
                [call = LinearCall{.x = weight.requires_grad() ? save(*input) : Saved(),
                                   .weight = x.requires_grad() ? save(*matrix) : Saved(),
                                   .rows = rows,
                                   .in = in,
                                   .out = out}](const GradIn& gy, GradOut& gx) mutable {
                  backward<bfloat16>(call, gy, gx);
                });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options) {
  const std::pair<int64_t, int64_t> matrix_size = rows_and_cols(x, "linear");
  const int64_t rows = matrix_size.first, in = matrix_size.second;
  HEED_CHECK(weight.rank() == 2 && weight.shape()[1] == in, ShapeError, "linear: weight is ", weight.shape(),
             ", expected [out, ", in, "] for an input of ", x.shape());
  if (weight.storage()->int8()) return detail::int8_linear(x, weight, bias, options);
  const int64_t out = weight.shape()[0];
  check_same_kind(x, weight, "linear");
  check_parameter(bias, "bias", {out}, x, "linear");
  check_floating(x, "linear");
  if (options.wide) {
    HEED_CHECK(!bias.defined() && options.activation == Activation::none && options.dropout == 0, ConfigError,
               "linear: a wide product has no bias, activation or dropout");
    if (x.dtype() == DType::bf16) return wide_product(x, weight, rows, in, out);
  }
  if (!detail::has_kernel<kernels::LinearForward>(x.device(), x.dtype()))
    return composed::linear(x, weight, bias, options);
  const Dropout dropout = draw_dropout(options.dropout, options.generator, "linear");

  const Contiguous input(x), matrix(weight), shift(bias);
  Shape shape = x.shape();
  shape[x.rank() - 1] = out;
  Tensor y = empty(shape, x.options());
  const bool recorded = needs_grad({x, weight, bias}), relu = options.activation == Activation::relu;
  const bool keep = recorded && options.activation != Activation::none && !relu;
  // In training the next step writes to the weight.
  kernels::PackedCopies* const copies = grad_enabled() ? nullptr : matrix->storage()->packed_copies();
  const Tensor pre_activation = keep ? empty_like(y) : Tensor();
  visit_floating(x.dtype(), "linear", [&]<class T>() {
    HEED_DISPATCH(x.device(), linear_forward,
                  kernels::LinearForward<T>{.x = input->data<T>(),
                                            .weight = matrix->data<T>(),
                                            .copies = copies,
                                            .bias = data_or_null<T>(*shift),
                                            .activation = options.activation,
                                            .dropout = dropout,
                                            .y = y.data<T>(),
                                            .pre_activation = data_or_null<T>(pre_activation),
                                            .rows = rows,
                                            .in = in,
                                            .out = out});
  });

  if (!recorded) return y;
  return record("linear", {x, weight, bias}, y,
                [call = LinearCall{.x = weight.requires_grad() ? save(*input) : Saved(),
                                   .weight = x.requires_grad() ? save(*matrix) : Saved(),
                                   .saved = save(relu ? y : pre_activation),
                                   .activation = options.activation,
                                   .dropout = dropout,
                                   .rows = rows,
                                   .in = in,
                                   .out = out}](const GradIn& gy, GradOut& gx) mutable {
                  visit_floating(gy[0].dtype(), "linear", [&]<class T>() { backward<T>(call, gy, gx); });
                });
}

}  // namespace heed
