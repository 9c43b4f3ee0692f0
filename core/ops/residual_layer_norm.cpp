#include <heed/core/backend.h>
#include <heed/core/dispatch.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/core/ops/dropout_option.h>
#include <heed/kernels/dropout.h>
#include <heed/kernels/residual_layer_norm.h>

namespace heed {
namespace {

struct ResidualLayerNormClosure {
  static constexpr int kRecomputed = 1;  // normed
  Saved sum, weight, bias;
  Tensor statistics;  // [2, rows]: means, then reciprocal deviations
  Dropout dropout;
  Tensor keep_mask;  // undefined: drawn again
  DType dtype;
  int64_t rows, cols;
  double eps;

  void operator()(const GradIn& gy, GradOut& gx) const;
  Tensor recompute() const;
};

// Where `normed` took no part in the loss: what is left is the gradient of residual + dropout(x).
template <class T>
void backward_of_sum(const ResidualLayerNormClosure& call, const Tensor& gsum, GradOut& gx) {
  if (gx.wants(0)) gx.add(0, gsum);
  if (!gx.wants(1)) return;
  if (!call.dropout.active()) return gx.add(1, gsum);
  const Tensor g = gsum.contiguous();
  const GradSlot slot = gx.into(1);
  HEED_DISPATCH(g.device(), dropout_backward,
                kernels::DropoutBackward<T>{.gy = g.data<T>(),
                                            .gx = slot.tensor.data<T>(),
                                            .count = g.numel(),
                                            .dropout = call.dropout,
                                            .accumulate = slot.accumulate});
}

template <class T>
void backward(const ResidualLayerNormClosure& call, const GradIn& gy, GradOut& gx) {
  using A = accumulator_t<T>;
  if (!gy[1].defined()) return backward_of_sum<T>(call, gy[0], gx);
  const Tensor gsum = contiguous_or_undefined(gy[0]), g = gy[1].contiguous();
  const Tensor sum = *call.sum, weight = *call.weight;
  const GradSlot to_residual = slot_if_wanted(gx, 0), to_x = slot_if_wanted(gx, 1),
                 to_weight = accumulator_if_wanted(gx, 2), to_bias = accumulator_if_wanted(gx, 3);
  if (call.cols == 0) return;
  HEED_DISPATCH(g.device(), residual_layer_norm_backward,
                kernels::ResidualLayerNormBackward<T>{.gy = g.data<T>(),
                                                      .gsum = data_or_null<T>(gsum),
                                                      .sum = sum.data<T>(),
                                                      .weight = data_or_null<T>(weight),
                                                      .mean = call.statistics.data<A>(),
                                                      .rstd = call.statistics.data<A>() + call.rows,
                                                      .dropout = call.dropout,
                                                      .gresidual = data_or_null<T>(to_residual.tensor),
                                                      .gx = data_or_null<T>(to_x.tensor),
                                                      .gweight = data_or_null<A>(to_weight.tensor),
                                                      .gbias = data_or_null<A>(to_bias.tensor),
                                                      .accumulate_residual = to_residual.accumulate,
                                                      .accumulate_x = to_x.accumulate,
                                                      .accumulate_weight = to_weight.accumulate,
                                                      .accumulate_bias = to_bias.accumulate,
                                                      .rows = call.rows,
                                                      .cols = call.cols,
                                                      .keep_mask = keep_mask_bits(call.keep_mask)});
}

void ResidualLayerNormClosure::operator()(const GradIn& gy, GradOut& gx) const {
  visit_floating(dtype, "residual_layer_norm", [&]<class T>() { backward<T>(*this, gy, gx); });
}

Tensor ResidualLayerNormClosure::recompute() const {
  const Tensor x = *sum, scale = *weight, shift = *bias, normed = empty_like(x);
  if (cols == 0) return normed;
  visit_floating(dtype, "residual_layer_norm", [&]<class T>() {
    HEED_DISPATCH(x.device(), residual_layer_norm_forward,
                  kernels::ResidualLayerNormForward<T>{.residual = nullptr,
                                                       .x = x.data<T>(),
                                                       .weight = data_or_null<T>(scale),
                                                       .bias = data_or_null<T>(shift),
                                                       .dropout = {},
                                                       .sum = nullptr,
                                                       .y = normed.data<T>(),
                                                       .mean = nullptr,
                                                       .rstd = nullptr,
                                                       .rows = rows,
                                                       .cols = cols,
                                                       .eps = eps});
  });
  return normed;
}

}  // namespace

ResidualNorm residual_layer_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                 const Tensor& bias, const DropoutOptions& options, double eps) {
  const char* name = "residual_layer_norm";
  const int64_t rows = rows_and_cols(x, name).first, cols = x.size(-1);
  HEED_CHECK(residual.shape() == x.shape(), ShapeError, name, ": residual is ", residual.shape(), ", x is ",
             x.shape(), "; they must be equal");
  HEED_CHECK(eps > 0, ConfigError, name, ": eps is ", eps, "; it must be positive");
  check_same_kind(residual, x, name);
  check_parameter(weight, "weight", {cols}, x, name);
  check_parameter(bias, "bias", {cols}, x, name);
  check_floating(x, name);
  if (!detail::has_kernel<kernels::ResidualLayerNormForward>(x.device(), x.dtype()))
    return composed::residual_layer_norm(residual, x, weight, bias, options, eps);
  const Dropout dropout = draw_dropout(options.p, options.generator, name);

  const Contiguous base(residual), input(x), scale(weight), shift(bias);
  const bool backward_follows = needs_grad({residual, x, weight, bias});
  const Tensor sum = empty_like(x), normed = empty_like(x),
               statistics = backward_follows ? empty({2, rows}, accumulator_options(x)) : Tensor();
  const Tensor keep_mask = backward_follows && backend(x.device()).saves_dropout_masks
                               ? empty_keep_mask(cpu::residual_layer_norm_keep_mask_size(rows, cols, dropout))
                               : Tensor();
  visit_floating(x.dtype(), name, [&]<class T>() {
    using A = accumulator_t<T>;
    if (cols == 0) return;
    HEED_DISPATCH(x.device(), residual_layer_norm_forward,
                  kernels::ResidualLayerNormForward<T>{.residual = base->data<T>(),
                                                       .x = input->data<T>(),
                                                       .weight = data_or_null<T>(*scale),
                                                       .bias = data_or_null<T>(*shift),
                                                       .dropout = dropout,
                                                       .sum = sum.data<T>(),
                                                       .y = normed.data<T>(),
                                                       .mean = data_or_null<A>(statistics),
                                                       .rstd = data_or_null<A>(statistics, rows),
                                                       .rows = rows,
                                                       .cols = cols,
                                                       .eps = eps,
                                                       .keep_mask = keep_mask_bits(keep_mask)});
  });

  if (!backward_follows) return {sum, normed};
  record(name, {residual, x, weight, bias}, {sum, normed},
         ResidualLayerNormClosure{.sum = save(sum),
                                  .weight = save(*scale),
                                  .bias = save(*shift),
                                  .statistics = statistics,
                                  .dropout = dropout,
                                  .keep_mask = keep_mask,
                                  .dtype = x.dtype(),
                                  .rows = rows,
                                  .cols = cols,
                                  .eps = eps});
  return {sum, normed};
}

}  // namespace heed
