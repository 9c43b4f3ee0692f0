#include <heed/core/dispatch.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/core/ops/dropout_option.h>
#include <heed/kernels/dropout.h>
#include <heed/kernels/rms_norm.h>

namespace heed {
namespace {

/// Without a residual the sum is x. `rstd` [rows] is undefined where it is not wanted.
void forward(const Tensor& residual, const Tensor& x, const Tensor& weight, const Dropout& dropout,
             const Tensor& sum, const Tensor& normed, const Tensor& rstd, double eps) {
  const int64_t cols = x.size(-1);
  if (cols == 0) return;
  visit_floating(x.dtype(), "rms_norm", [&]<class T>() {
    HEED_DISPATCH(x.device(), rms_norm_forward,
                  kernels::RMSNormForward<T>{.residual = data_or_null<T>(residual),
                                             .x = x.data<T>(),
                                             .weight = data_or_null<T>(weight),
                                             .dropout = dropout,
                                             .sum = residual.defined() ? sum.data<T>() : nullptr,
                                             .y = normed.data<T>(),
                                             .rstd = data_or_null<accumulator_t<T>>(rstd),
                                             .rows = x.numel() / cols,
                                             .cols = cols,
                                             .eps = eps});
  });
}

struct RMSNormCall {
  Saved sum, weight;
  Tensor rstd;
  Dropout dropout;
  double eps;

  Tensor normed_again() const {
    const Tensor x = *sum, y = empty_like(x);
    forward({}, x, *weight, {}, {}, y, {}, eps);
    return y;
  }

  /// `gsum` is undefined where the sum receives no gradient from elsewhere.
  void backward(const Tensor& gy, const Tensor& gsum, const GradSlot& to_residual, const GradSlot& to_x,
                const GradSlot& to_weight) const {
    const Tensor x = *sum, scale = *weight;
    const int64_t cols = x.size(-1);
    if (cols == 0) return;
    visit_floating(gy.dtype(), "rms_norm", [&]<class T>() {
      using A = accumulator_t<T>;
      HEED_DISPATCH(gy.device(), rms_norm_backward,
                    kernels::RMSNormBackward<T>{.gy = gy.data<T>(),
                                                .gsum = data_or_null<T>(gsum),
                                                .sum = x.data<T>(),
                                                .weight = data_or_null<T>(scale),
                                                .rstd = rstd.data<A>(),
                                                .dropout = dropout,
                                                .gresidual = data_or_null<T>(to_residual.tensor),
                                                .gx = data_or_null<T>(to_x.tensor),
                                                .gweight = data_or_null<A>(to_weight.tensor),
                                                .accumulate_residual = to_residual.accumulate,
                                                .accumulate_x = to_x.accumulate,
                                                .accumulate_weight = to_weight.accumulate,
                                                .rows = x.numel() / cols,
                                                .cols = cols});
    });
  }
};

struct RMSNormClosure : RMSNormCall {
  static constexpr int kRecomputed = 0;
  Tensor recompute() const { return normed_again(); }

  void operator()(const GradIn& gy, GradOut& gx) const {
    const GradSlot to_x = slot_if_wanted(gx, 0), to_weight = accumulator_if_wanted(gx, 1);
    backward(gy[0].contiguous(), {}, {}, to_x, to_weight);
  }
};

struct ResidualRMSNormClosure : RMSNormCall {
  static constexpr int kRecomputed = 1;  // normed
  Tensor recompute() const { return normed_again(); }

  void operator()(const GradIn& gy, GradOut& gx) const {
    if (!gy[1].defined()) return backward_of_sum(gy[0], gx);
    const GradSlot to_residual = slot_if_wanted(gx, 0), to_x = slot_if_wanted(gx, 1),
                   to_weight = accumulator_if_wanted(gx, 2);
    backward(gy[1].contiguous(), contiguous_or_undefined(gy[0]), to_residual, to_x, to_weight);
  }

 private:
  // Where `normed` took no part in the loss: what is left is the gradient of residual + dropout(x).
  void backward_of_sum(const Tensor& gsum, GradOut& gx) const {
    if (gx.wants(0)) gx.add(0, gsum);
    if (!gx.wants(1)) return;
    if (!dropout.active()) return gx.add(1, gsum);
    const Tensor g = gsum.contiguous();
    const GradSlot slot = gx.into(1);
    visit_floating(g.dtype(), "residual_rms_norm", [&]<class T>() {
      HEED_DISPATCH(g.device(), dropout_backward,
                    kernels::DropoutBackward<T>{.gy = g.data<T>(),
                                                .gx = slot.tensor.data<T>(),
                                                .count = g.numel(),
                                                .dropout = dropout,
                                                .accumulate = slot.accumulate});
    });
  }
};

void check(const Tensor& x, const Tensor& weight, double eps, const char* name) {
  const int64_t cols = rows_and_cols(x, name).second;
  HEED_CHECK(eps > 0, ConfigError, name, ": eps is ", eps, "; it must be positive");
  check_parameter(weight, "weight", {cols}, x, name);
  check_floating(x, name);
}

Tensor empty_rstd(const Tensor& x, bool wanted) {
  return wanted ? empty({rows_and_cols(x, "rms_norm").first}, accumulator_options(x)) : Tensor();
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check(x, weight, eps, "rms_norm");
  if (!detail::has_kernel<kernels::RMSNormForward>(x.device(), x.dtype()))
    return composed::rms_norm(x, weight, eps);
  const Contiguous input(x), scale(weight);
  const bool backward_follows = needs_grad({x, weight});
  const Tensor y = empty_like(x), rstd = empty_rstd(x, backward_follows);
  forward({}, *input, *scale, {}, {}, y, rstd, eps);
  if (!backward_follows) return y;
  return record("rms_norm", {x, weight}, y, RMSNormClosure{{save(*input), save(*scale), rstd, {}, eps}});
}

ResidualNorm residual_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                               const DropoutOptions& options, double eps) {
  const char* name = "residual_rms_norm";
  check(x, weight, eps, name);
  HEED_CHECK(residual.shape() == x.shape(), ShapeError, name, ": residual is ", residual.shape(), ", x is ",
             x.shape(), "; they must be equal");
  check_same_kind(residual, x, name);
  if (!detail::has_kernel<kernels::RMSNormForward>(x.device(), x.dtype()))
    return composed::residual_rms_norm(residual, x, weight, options, eps);
  const Dropout dropout = draw_dropout(options.p, options.generator, name);

  const Contiguous base(residual), input(x), scale(weight);
  const bool backward_follows = needs_grad({residual, x, weight});
  const Tensor sum = empty_like(x), normed = empty_like(x), rstd = empty_rstd(x, backward_follows);
  forward(*base, *input, *scale, dropout, sum, normed, rstd, eps);
  if (backward_follows)
    record(name, {residual, x, weight}, {sum, normed},
           ResidualRMSNormClosure{{save(sum), save(*scale), rstd, dropout, eps}});
  return {sum, normed};
}

}  // namespace heed
