#include <heed/core/dispatch.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/dropout_option.h>
#include <heed/kernels/linear.h>

namespace heed {
namespace {

struct LinearCall {
  Saved x, weight;  // each only if the gradient of the other is wanted
  Saved kept;       // y after relu, what went into another activation; undefined without one
  Activation activation;
  Dropout dropout;
  int64_t rows, in, out;
};

template <class T>
void backward(const LinearCall& call, const GradIn& gy, GradOut& gx) {
  using A = accumulator_t<T>;
  const Tensor g = gy[0].contiguous(), x = *call.x, weight = *call.weight, kept = *call.kept;
  const bool plain = call.activation == Activation::none && !call.dropout.active();
  const Tensor gpre = plain ? Tensor() : empty_like(g);
  const GradSlot to_bias = accumulator_if_wanted(gx, 2), to_weight = accumulator_if_wanted(gx, 1),
                 to_x = slot_if_wanted(gx, 0);
  HEED_DISPATCH(g.device(), linear_backward,
                kernels::LinearBackward<T>{.gy = g.data<T>(),
                                           .kept = data_or_null<T>(kept),
                                           .activation = call.activation,
                                           .dropout = call.dropout,
                                           .gpre = data_or_null<T>(gpre),
                                           .gbias = data_or_null<A>(to_bias.tensor),
                                           .accumulate_bias = to_bias.accumulate,
                                           .rows = call.rows,
                                           .out = call.out,
                                           .in = call.in,
                                           .x = data_or_null<T>(x),
                                           .gweight = data_or_null<A>(to_weight.tensor),
                                           .accumulate_weight = to_weight.accumulate,
                                           .weight = data_or_null<T>(weight),
                                           .gx = data_or_null<T>(to_x.tensor),
                                           .accumulate_x = to_x.accumulate});
}

/// The weight as the CPU's product takes it, made on first use and kept with its memory; null where the
/// product takes none.
template <class T>
const T* kept_packed(const Tensor& weight) {
  const int64_t out = weight.shape()[0], in = weight.shape()[1], size = cpu::packed_weight_size<T>(out, in);
  if (!weight.device().is_cpu() || size == 0) return nullptr;
  Storage& storage = *weight.storage();
  const MatrixKey key{weight.offset(), out, in, weight.dtype()};
  const std::byte* kept = storage.kept_copy(key);
  if (kept == nullptr) {
    const Ref<Storage> copy = make_ref<Storage>(weight.device(), size * int64_t{sizeof(T)});
    cpu::pack_weight(weight.data<T>(), out, in, reinterpret_cast<T*>(copy->data()));
    kept = storage.keep_copy(key, copy);
  }
  return reinterpret_cast<const T*>(kept);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options) {
  const int64_t rows = rows_and_cols(x, "linear").first, in = x.size(-1);
  HEED_CHECK(weight.rank() == 2 && weight.shape()[1] == in, ShapeError, "linear: weight is ", weight.shape(),
             ", expected [out, ", in, "] for an input of ", x.shape());
  const int64_t out = weight.shape()[0];
  check_same_kind(x, weight, "linear");
  check_parameter(bias, "bias", {out}, x, "linear");
  check_floating(x, "linear");
  const Dropout dropout = draw_dropout(options.dropout, options.generator, "linear");

  const Contiguous input(x), matrix(weight), shift(bias);
  Shape shape = x.shape();
  shape[x.rank() - 1] = out;
  const Tensor y = empty(shape, x.options());
  const bool recorded = needs_grad({x, weight, bias}), relu = options.activation == Activation::relu;
  constexpr int64_t kFewRows = 256;  // packing takes a fiftieth of a product of more
  const bool keep_packed = options.keep_packed && !recorded && rows <= kFewRows;
  const bool keep = recorded && options.activation != Activation::none && !relu;
  const Tensor pre_activation = keep ? empty_like(y) : Tensor();
  visit_floating(x.dtype(), "linear", [&]<class T>() {
    HEED_DISPATCH(x.device(), linear_forward,
                  kernels::LinearForward<T>{.x = input->data<T>(),
                                            .weight = matrix->data<T>(),
                                            .packed = keep_packed ? kept_packed<T>(*matrix) : nullptr,
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
                                   .kept = save(relu ? y : pre_activation),
                                   .activation = options.activation,
                                   .dropout = dropout,
                                   .rows = rows,
                                   .in = in,
                                   .out = out}](const GradIn& gy, GradOut& gx) {
                  visit_floating(gy[0].dtype(), "linear", [&]<class T>() { backward<T>(call, gy, gx); });
                });
}

}  // namespace heed
