#include <heed/core/dispatch.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/kernels/layer_norm.h>

namespace heed {
namespace {

/// `statistics`: [2, rows], means, then reciprocal deviations; undefined if they are not wanted.
void forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
             const Tensor& statistics, double eps) {
  const int64_t cols = x.size(-1);
  if (cols == 0) return;
  const int64_t rows = x.numel() / cols;
  visit_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using A = accumulator_t<T>;
    HEED_DISPATCH(x.device(), layer_norm_forward,
                  kernels::LayerNormForward<T>{.x = x.data<T>(),
                                               .weight = data_or_null<T>(weight),
                                               .bias = data_or_null<T>(bias),
                                               .y = y.data<T>(),
                                               .mean = data_or_null<A>(statistics),
                                               .rstd = data_or_null<A>(statistics, rows),
                                               .rows = rows,
                                               .cols = cols,
                                               .eps = eps});
  });
}

struct LayerNormClosure {
  static constexpr int kRecomputed = 0;
  Saved x, weight, bias;
  Tensor statistics;
  double eps;

  Tensor recompute() const {
    const Tensor input = *x, y = empty_like(input);
    forward(input, *weight, *bias, y, Tensor(), eps);
    return y;
  }

  void operator()(const GradIn& gy, GradOut& gx) const {
    const Tensor g = gy[0].contiguous(), input = *x, scale = *weight;
    const int64_t cols = input.size(-1);
    const GradSlot to_x = slot_if_wanted(gx, 0), to_weight = accumulator_if_wanted(gx, 1),
                   to_bias = accumulator_if_wanted(gx, 2);
    if (cols == 0) return;
    const int64_t rows = input.numel() / cols;
    visit_floating(g.dtype(), "layer_norm", [&]<class T>() {
      using A = accumulator_t<T>;
      HEED_DISPATCH(g.device(), layer_norm_backward,
                    kernels::LayerNormBackward<T>{.gy = g.data<T>(),
                                                  .x = input.data<T>(),
                                                  .weight = data_or_null<T>(scale),
                                                  .mean = statistics.data<A>(),
                                                  .rstd = statistics.data<A>() + rows,
                                                  .gx = data_or_null<T>(to_x.tensor),
                                                  .gweight = data_or_null<A>(to_weight.tensor),
                                                  .gbias = data_or_null<A>(to_bias.tensor),
                                                  .accumulate_x = to_x.accumulate,
                                                  .accumulate_weight = to_weight.accumulate,
                                                  .accumulate_bias = to_bias.accumulate,
                                                  .rows = rows,
                                                  .cols = cols});
    });
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const int64_t rows = rows_and_cols(x, "layer_norm").first, cols = x.size(-1);
  HEED_CHECK(eps > 0, ConfigError, "layer_norm: eps is ", eps, "; it must be positive");
  check_parameter(weight, "weight", {cols}, x, "layer_norm");
  check_parameter(bias, "bias", {cols}, x, "layer_norm");
  check_floating(x, "layer_norm");
  if (!detail::has_kernel<kernels::LayerNormForward>(x.device(), x.dtype()))
    return composed::layer_norm(x, weight, bias, eps);

  const Contiguous input(x), scale(weight), shift(bias);
  const bool backward_follows = needs_grad({x, weight, bias});
  const Tensor y = empty_like(x),
               statistics = backward_follows ? empty({2, rows}, accumulator_options(x)) : Tensor();
  forward(*input, *scale, *shift, y, statistics, eps);
  if (!backward_follows) return y;
  return record("layer_norm", {x, weight, bias}, y,
                LayerNormClosure{save(*input), save(*scale), save(*shift), statistics, eps});
}

}  // namespace heed
