#include <utility>

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
  int64_t rows, in, first, out;  // outputs first … first + out - 1 of the weight's
};

/// Where a gradient of those outputs' rows goes, `width` elements each. The other rows of a gradient that is
/// written anew become zero.
template <class A>
A* rows_of(const GradSlot& slot, const LinearCall& call, int64_t width) {
  if (!slot.tensor.defined()) return nullptr;
  A* const all = slot.tensor.data<A>();
  if (!slot.accumulate) {
    const auto zero = [&](int64_t begin, int64_t end) {
      fill_bytes(all + begin * width, slot.tensor.device(), 0, (end - begin) * width * int64_t{sizeof(A)});
    };
    zero(0, call.first);
    zero(call.first + call.out, slot.tensor.shape()[0]);
  }
  return all + call.first * width;
}

template <class T>
void backward(LinearCall& call, const GradIn& gy, GradOut& gx) {
  using A = accumulator_t<T>;
  Tensor g = gy[0].contiguous();
  const GradSlot to_bias = accumulator_if_wanted(gx, 2);
  A* gbias = rows_of<A>(to_bias, call, 1);
  if (call.activation != Activation::none || call.dropout.active()) {
    const Tensor gpre = gy.owned(0) ? g : empty_like(g);
    const Tensor kept = *call.kept;
    HEED_DISPATCH(g.device(), linear_activation_backward,
                  kernels::LinearActivationBackward<T>{.gy = g.data<T>(),
                                                       .kept = data_or_null<T>(kept),
                                                       .activation = call.activation,
                                                       .dropout = call.dropout,
                                                       .gpre = gpre.data<T>(),
                                                       .gbias = std::exchange(gbias, nullptr),
                                                       .accumulate_bias = to_bias.accumulate,
                                                       .rows = call.rows,
                                                       .out = call.out});
    if (gy.last()) call.kept = {};  // before the products ask for memory
    g = gpre;
  }
  const Tensor x = *call.x, weight = *call.weight;
  const GradSlot to_weight = accumulator_if_wanted(gx, 1), to_x = slot_if_wanted(gx, 0);
  HEED_DISPATCH(g.device(), linear_backward,
                kernels::LinearBackward<T>{.g = g.data<T>(),
                                           .gbias = gbias,
                                           .accumulate_bias = to_bias.accumulate,
                                           .x = data_or_null<T>(x),
                                           .gweight = rows_of<A>(to_weight, call, call.in),
                                           .accumulate_weight = to_weight.accumulate,
                                           .weight = data_or_null<T>(weight, call.first * call.in),
                                           .gx = data_or_null<T>(to_x.tensor),
                                           .accumulate_x = to_x.accumulate,
                                           .rows = call.rows,
                                           .in = call.in,
                                           .out = call.out});
}

/// Rows first … first + out - 1 of the weight as the CPU's product takes them, made on first use and kept
/// with its memory; null where the product takes none.
template <class T>
const T* kept_packed(const Tensor& weight, int64_t first, int64_t out) {
  if (!weight.device().is_cpu()) return nullptr;
  const int64_t in = weight.shape()[1];
  Storage& storage = *weight.storage();
  const MatrixKey key{weight.offset() + first * in, out, in, weight.dtype()};
  if (const std::byte* kept = storage.kept_copy(key)) return reinterpret_cast<const T*>(kept);
  const int64_t size = cpu::packed_weight_size<T>(out, in);
  if (size == 0) return nullptr;
  const Ref<Storage> copy = make_ref<Storage>(weight.device(), size * int64_t{sizeof(T)});
  cpu::pack_weight(weight.data<T>() + first * in, out, in, reinterpret_cast<T*>(copy->data()));
  return reinterpret_cast<const T*>(storage.keep_copy(key, copy));
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options) {
  const int64_t rows = rows_and_cols(x, "linear").first, in = x.size(-1);
  HEED_CHECK(weight.rank() == 2 && weight.shape()[1] == in, ShapeError, "linear: weight is ", weight.shape(),
             ", expected [out, ", in, "] for an input of ", x.shape());
  const int64_t stacked = weight.shape()[0], first = options.first_output,
                out = options.outputs == 0 ? stacked - first : options.outputs;
  HEED_CHECK(first >= 0 && first <= stacked && out >= 0 && out <= stacked - first, ShapeError,
             "linear: ", options.outputs, " outputs from number ", first, " on of a weight that is ",
             weight.shape());
  check_same_kind(x, weight, "linear");
  check_parameter(bias, "bias", {stacked}, x, "linear");
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
    HEED_DISPATCH(
        x.device(), linear_forward,
        kernels::LinearForward<T>{.x = input->data<T>(),
                                  .weight = matrix->data<T>() + first * in,
                                  .packed = keep_packed ? kept_packed<T>(*matrix, first, out) : nullptr,
                                  .bias = data_or_null<T>(*shift, first),
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
                                   .first = first,
                                   .out = out}](const GradIn& gy, GradOut& gx) mutable {
                  visit_floating(gy[0].dtype(), "linear", [&]<class T>() { backward<T>(call, gy, gx); });
                });
}

}  // namespace heed
