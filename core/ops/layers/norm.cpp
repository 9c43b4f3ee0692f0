#include <tuple>
#include <utility>

#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/core/ops/layers/dropout_option.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/dropout.h>
#include <heed/kernels/norm.h>

namespace heed {
namespace {

/// What the forward and the backward of a call share.
struct Norm {
  const char* operation;
  NormKind kind;
  double eps;
  Dropout dropout = {};
  int64_t rows = 0, cols = 0;

  /// For a layer norm the means of the rows; then their reciprocal deviations.
  Tensor empty_statistics(const Tensor& x) const {
    return empty({kind == NormKind::layer ? 2 : 1, rows}, accumulator_options(x));
  }
  template <class A>
  A* means(const Tensor& statistics) const {
    return kind == NormKind::layer ? data_or_null<A>(statistics) : nullptr;
  }
  template <class A>
  A* inverses(const Tensor& statistics) const {
    return data_or_null<A>(statistics, kind == NormKind::layer ? rows : 0);
  }
};

/// HEED_DISPATCH with the operation's name for profiles.
template <class T>
void dispatch(Device device, const kernels::NormForward<T>& args) {
  detail::dispatch(
      device, args.name(), [](const auto& a) { cpu::norm_forward(a); },
      [](const auto& a) { cuda::norm_forward(a); }, args);
}
template <class T>
void dispatch(Device device, const kernels::NormBackward<T>& args) {
  detail::dispatch(
      device, args.name(), [](const auto& a) { cpu::norm_backward(a); },
      [](const auto& a) { cuda::norm_backward(a); }, args);
}

/// Contiguous; what is undefined is absent or not wanted.
struct ForwardTensors {
  const Tensor &residual, &x, &weight, &bias, &sum, &normed, &statistics, &keep_mask, &invertible;
  bool post = false;   // the sum is for the backward alone
  bool again = false;  // x is the sum of an earlier call
};

void forward(const Norm& norm, const ForwardTensors& t) {
  if (norm.cols == 0) return;
  visit_floating(t.x.dtype(), norm.operation, [&]<class T>() {
    using A = accumulator_t<T>;
    dispatch(t.x.device(), kernels::NormForward<T>{.kind = norm.kind,
                                                   .residual = data_or_null<T>(t.residual),
                                                   .x = t.x.data<T>(),
                                                   .weight = data_or_null<T>(t.weight),
                                                   .bias = data_or_null<T>(t.bias),
                                                   .dropout = t.residual.defined() ? norm.dropout : Dropout(),
                                                   .sum = data_or_null<T>(t.sum),
                                                   .y = t.normed.data<T>(),
                                                   .mean = norm.means<A>(t.statistics),
                                                   .rstd = norm.inverses<A>(t.statistics),
                                                   .keep_mask = keep_mask_bits(t.keep_mask),
                                                   .again = t.again,
                                                   .rows = norm.rows,
                                                   .cols = norm.cols,
                                                   .eps = norm.eps,
                                                   .post = t.post,
                                                   .invertible = data_or_null<bool>(t.invertible)});
  });
}

/// Of what, and for whom. Alone: of x, which is the sum then. Post: of a sum that nobody else reads. Pre: of
/// one that is an output, the first.
enum class Place { alone, post, pre };

/// Of inputs residual, x, weight, bias.
template <Place kPlace>
struct NormClosure {
  static constexpr bool kResidual = kPlace != Place::alone;
  static constexpr int kNormed = kPlace == Place::pre ? 1 : 0, kRecomputed = kNormed;
  Norm norm;
  Saved sum, weight, bias;
  Saved y;  // where the backward may take it in place of the sum
  Tensor statistics;
  Tensor keep_mask;   // undefined: drawn again
  Tensor invertible;  // undefined: the sum is there

  Tensor recompute() const {
    if (y.defined()) return *y;
    const Tensor none, x = *sum, scale = *weight, shift = *bias, normed = empty_like(x);
    forward(norm, {none, x, scale, shift, none, normed, none, none, none, false, kResidual});
    return normed;
  }

  void operator()(const GradIn& gy, GradOut& gx) const {
    if (kPlace == Place::pre && !gy[kNormed].defined()) return backward_of_sum(gy[0], gx);
    const Tensor gsum = kPlace == Place::pre ? contiguous_or_undefined(gy[0]) : Tensor(),
                 g = gy[kNormed].contiguous(), x = *sum, scale = *weight, normed = *y,
                 shift = normed.defined() ? *bias : Tensor();
    const GradSlot to_residual = slot_if_wanted(gx, 0), to_x = slot_if_wanted(gx, 1),
                   to_weight = accumulator_if_wanted(gx, 2), to_bias = accumulator_if_wanted(gx, 3);
    if (norm.cols == 0) return;
    visit_floating(g.dtype(), norm.operation, [&]<class T>() {
      using A = accumulator_t<T>;
      dispatch(g.device(), kernels::NormBackward<T>{.kind = norm.kind,
                                                    .residual = kResidual,
                                                    .gy = g.data<T>(),
                                                    .gsum = data_or_null<T>(gsum),
                                                    .sum = x.data<T>(),
                                                    .weight = data_or_null<T>(scale),
                                                    .mean = norm.means<A>(statistics),
                                                    .rstd = norm.inverses<A>(statistics),
                                                    .dropout = norm.dropout,
                                                    .keep_mask = keep_mask_bits(keep_mask),
                                                    .gresidual = data_or_null<T>(to_residual.tensor),
                                                    .gx = data_or_null<T>(to_x.tensor),
                                                    .gweight = data_or_null<A>(to_weight.tensor),
                                                    .gbias = data_or_null<A>(to_bias.tensor),
                                                    .accumulate_residual = to_residual.accumulate,
                                                    .accumulate_x = to_x.accumulate,
                                                    .accumulate_weight = to_weight.accumulate,
                                                    .accumulate_bias = to_bias.accumulate,
                                                    .rows = norm.rows,
                                                    .cols = norm.cols,
                                                    .y = data_or_null<T>(normed),
                                                    .bias = data_or_null<T>(shift),
                                                    .invertible = data_or_null<bool>(invertible)});
    });
  }

 private:
  // Where `normed` took no part in the loss: what is left is the gradient of residual + dropout(x).
  void backward_of_sum(const Tensor& gsum, GradOut& gx) const {
    if (gx.wants(0)) gx.add(0, gsum);
    if (!gx.wants(1)) return;
    if (!norm.dropout.active()) return gx.add(1, gsum);
    const Tensor g = gsum.contiguous();
    const GradSlot slot = gx.into(1);
    visit_floating(g.dtype(), norm.operation, [&]<class T>() {
      HEED_DISPATCH(g.device(), dropout_backward,
                    kernels::DropoutBackward<T>{.gy = g.data<T>(),
                                                .gx = slot.tensor.data<T>(),
                                                .count = g.numel(),
                                                .dropout = norm.dropout,
                                                .accumulate = slot.accumulate});
    });
  }
};

struct Operands {
  const Tensor &residual, &x, &weight, &bias;
};

/// One of the six operations. Only those before a sub-layer return a sum.
template <Place kPlace>
ResidualNorm normalize(Norm norm, const Operands& in, const DropoutOptions& options) {
  constexpr bool kResidual = kPlace != Place::alone;
  const Tensor &residual = in.residual, &x = in.x, &weight = in.weight, &bias = in.bias;
  const char* const name = norm.operation;
  std::tie(norm.rows, norm.cols) = rows_and_cols(x, name);
  if (kResidual)
    HEED_CHECK(residual.shape() == x.shape(), ShapeError, name, ": residual is ", residual.shape(), ", x is ",
               x.shape(), "; they must be equal");
  HEED_CHECK(norm.eps > 0, ConfigError, name, ": eps is ", norm.eps, "; it must be positive");
  if (kResidual) check_same_kind(residual, x, name);
  check_parameter(weight, "weight", {norm.cols}, x, name);
  check_parameter(bias, "bias", {norm.cols}, x, name);
  check_floating(x, name);
  if (!detail::has_kernel<kernels::NormForward>(x.device(), x.dtype())) {
    const Tensor sum = kResidual ? residual_dropout(residual, x, options) : Tensor();
    return {sum, composed::norm(norm.kind, kResidual ? sum : x, weight, bias, norm.eps)};
  }
  if (kResidual) norm.dropout = draw_dropout(options.p, options.generator, name);

  const Contiguous base(residual), input(x), scale(weight), shift(bias);
  const bool backward_follows = needs_grad({residual, x, weight, bias});
  const Tensor normed = empty_like(x), sum = kResidual ? empty_like(x) : Tensor(),
               statistics = backward_follows ? norm.empty_statistics(x) : Tensor(),
               keep_mask = backward_follows && kResidual && backend(x.device()).saves_dropout_masks
                               ? empty_keep_mask(cpu::norm_keep_mask_size(norm.rows, norm.cols, norm.dropout))
                               : Tensor(),
               invertible =
                   backward_follows && kPlace == Place::post && backend(x.device()).inverts_post_norms
                       ? empty({1}, {.dtype = DType::boolean, .device = x.device()})
                       : Tensor();
  forward(norm, {*base, *input, *scale, *shift, sum, normed, statistics, keep_mask, invertible,
                 kPlace == Place::post});
  const ResidualNorm out{kPlace == Place::pre ? sum : Tensor(), normed};
  if (!backward_follows) return out;
  NormClosure<kPlace> closure{norm,
                              save(kResidual ? sum : *input),
                              save(*scale),
                              save(*shift),
                              save(invertible.defined() ? normed : Tensor()),
                              statistics,
                              keep_mask,
                              invertible};
  if constexpr (kPlace == Place::pre)
    record(name, {residual, x, weight, bias}, {sum, normed}, std::move(closure));
  else
    record(name, {residual, x, weight, bias}, normed, std::move(closure));
  return out;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return normalize<Place::alone>({"layer_norm", NormKind::layer, eps}, {{}, x, weight, bias}, {}).normed;
}

ResidualNorm residual_layer_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                 const Tensor& bias, const DropoutOptions& dropout, double eps) {
  return normalize<Place::pre>({"residual_layer_norm", NormKind::layer, eps}, {residual, x, weight, bias},
                               dropout);
}

Tensor post_layer_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const DropoutOptions& dropout, double eps) {
  return normalize<Place::post>({"post_layer_norm", NormKind::layer, eps}, {residual, x, weight, bias},
                                dropout)
      .normed;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return normalize<Place::alone>({"rms_norm", NormKind::rms, eps}, {{}, x, weight, {}}, {}).normed;
}

ResidualNorm residual_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                               const DropoutOptions& dropout, double eps) {
  return normalize<Place::pre>({"residual_rms_norm", NormKind::rms, eps}, {residual, x, weight, {}}, dropout);
}

Tensor post_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                     const DropoutOptions& dropout, double eps) {
  return normalize<Place::post>({"post_rms_norm", NormKind::rms, eps}, {residual, x, weight, {}}, dropout)
      .normed;
}

}  // namespace heed
