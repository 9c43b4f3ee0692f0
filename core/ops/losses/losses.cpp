// Losses as compositions.
#include <cmath>

#include <heed/core/losses.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/indexing.h>
#include <heed/core/ops/losses/class_loss.h>

namespace heed {
namespace {

Tensor reduced(const Tensor& loss, Reduction reduction, const char* operation) {
  switch (reduction) {
    case Reduction::mean:
      return mean(loss);
    case Reduction::sum:
      return sum(loss);
    case Reduction::none:
      return loss;
    case Reduction::batch_mean:
      HEED_CHECK(loss.rank() > 0, ShapeError, operation,
                 ": batch_mean needs an axis, got a tensor of rank 0");
      return sum(loss) / static_cast<double>(loss.shape()[0]);
  }
  return loss;
}

Tensor widened(const Tensor& x) { return x.to(accumulator_options(x).dtype); }

void check_pair(const Tensor& x, const Tensor& target, const char* operation) {
  check_same_kind(x, target, operation);
  check_floating(x, operation);
  HEED_CHECK(x.shape() == target.shape(), ShapeError, operation, ": the input is ", x.shape(),
             ", the target ", target.shape(), "; they need one shape");
}

Tensor difference(const Tensor& x, const Tensor& target, const char* operation) {
  check_pair(x, target, operation);
  return widened(x) - widened(target);
}

Tensor huber(const Tensor& difference, double delta) {
  const Tensor d = abs(difference), near = clamp(d, 0, delta);
  return near * (d - near * 0.5);
}

void check_weight(const Tensor& weight, const Tensor& x, const char* name) {
  constexpr const char* kName = "binary_cross_entropy_with_logits";
  if (!weight.defined()) return;
  check_same_kind(x, weight, kName);
  HEED_CHECK(weight.rank() <= x.rank() && broadcast_shapes(weight.shape(), x.shape(), kName) == x.shape(),
             ShapeError, kName, ": ", name, " of shape ", weight.shape(), " does not broadcast to ",
             x.shape());
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return reduced(square(difference(x, target, "mse_loss")), reduction, "mse_loss");
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return reduced(abs(difference(x, target, "l1_loss")), reduction, "l1_loss");
}

Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberOptions& options) {
  HEED_CHECK(options.delta > 0, ConfigError, "huber_loss: delta is ", options.delta, "; it must be above 0");
  return reduced(huber(difference(x, target, "huber_loss"), options.delta), options.reduction, "huber_loss");
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const SmoothL1Options& options) {
  HEED_CHECK(options.beta >= 0, ConfigError, "smooth_l1_loss: beta is ", options.beta,
             "; it must not be negative");
  if (options.beta == 0) return l1_loss(x, target, options.reduction);
  const Tensor loss = huber(difference(x, target, "smooth_l1_loss"), options.beta) / options.beta;
  return reduced(loss, options.reduction, "smooth_l1_loss");
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options) {
  constexpr const char* kName = "binary_cross_entropy_with_logits";
  check_pair(x, target, kName);
  check_weight(options.weight, x, "weight");
  check_weight(options.pos_weight, x, "pos_weight");
  // softplus(-x) is -log σ(x) and softplus(x) is -log(1 - σ(x)): nothing cancels, whatever the target.
  const Tensor logits = widened(x), yes = widened(target);
  Tensor of_yes = yes * softplus(-logits);
  if (options.pos_weight.defined()) of_yes = of_yes * widened(options.pos_weight);
  Tensor loss = of_yes + (1.0 - yes) * softplus(logits);
  if (options.weight.defined()) loss = loss * widened(options.weight);
  return reduced(loss, options.reduction, kName);
}

Tensor kl_divergence(const Tensor& x, const Tensor& target, const KlDivergenceOptions& options) {
  check_pair(x, target, "kl_divergence");
  const Tensor input = widened(x), wide = widened(target), zero = scalar(0, wide.options());
  if (options.log_target) return reduced(exp(wide) * (wide - input), options.reduction, "kl_divergence");
  // What has no probability adds nothing, whatever the input says of it.
  const Tensor some = greater(wide.detach(), zero);
  const Tensor p = where(some, wide, scalar(1, wide.options()));
  const Tensor loss = where(some, p * (log(p) - where(some, input, zero)), zero);
  return reduced(loss, options.reduction, "kl_divergence");
}

// ---- class ids
// ----------------------------------------------------------------------------------------------

void check_targets(const char* operation, const Tensor& x, const Tensor& targets) {
  Shape rows = x.shape();
  rows.erase(rows.rank() - 1);
  HEED_CHECK(targets.shape() == rows, ShapeError, operation, ": targets are ", targets.shape(), ", expected ",
             rows, " for an input of ", x.shape());
  HEED_CHECK(targets.dtype() == DType::i64, DTypeError, operation, ": targets are ", targets.dtype(),
             "; class ids must be i64");
  HEED_CHECK(targets.device() == x.device(), DeviceError, operation, ": targets on ", targets.device(),
             ", the input on ", x.device(), "; move one with to(Device)");
  check_floating(x, operation);
}

void check_classes(const char* operation, const Tensor& x, const Tensor& targets, const Tensor& weight) {
  HEED_CHECK(x.rank() > 0 && x.size(-1) > 0, ShapeError, operation, ": the input is ", x.shape(),
             "; the last axis holds the classes, at least one");
  check_targets(operation, x, targets);
  check_parameter(weight, "weight", {x.size(-1)}, x, operation);
}

Tensor counted_targets(const Tensor& targets, int64_t ignore) {
  return not_equal(targets, tensor(std::span<const int64_t>(&ignore, 1), {}, targets.device()));
}

Tensor counted_rows(const Tensor& x, const Tensor& counted) {
  return where(counted.unsqueeze(-1), x, scalar(0, x.options()));
}

Tensor class_loss(kernels::IndexUse use, const char* operation, const Tensor& log_probabilities,
                  const Tensor& targets, const Tensor& counted, const Tensor& weight, double label_smoothing,
                  Reduction reduction) {
  const Tensor& x = log_probabilities;
  const Tensor zero = scalar(0, x.options());
  const Tensor ids = where(counted, targets, scalar(0, targets.options()));
  const Tensor wide = weight.defined() ? widened(weight) : weight;
  Tensor loss = -gather(use, operation, x, -1, ids.unsqueeze(-1)).squeeze(-1);
  const Tensor factor =
      where(counted, wide.defined() ? index_select(wide, ids) : ones(loss.shape(), loss.options()), zero);
  loss = loss * factor;
  if (label_smoothing > 0) {
    const Tensor all = sum(wide.defined() ? x * wide : x, {.axes = {-1}});
    loss = loss * (1 - label_smoothing) - all * (label_smoothing / static_cast<double>(x.size(-1)));
  }
  loss = where(counted, loss, zero);
  if (reduction != Reduction::mean) return reduced(loss, reduction, operation);
  const Tensor total = sum(factor), none = equal(total.detach(), zero);
  return sum(loss) / where(none, scalar(1, total.options()), total);
}

Tensor nll_loss(const Tensor& x, const Tensor& targets, const NllOptions& options) {
  check_classes("nll_loss", x, targets, options.weight);
  const Tensor counted = counted_targets(targets, options.ignore);
  return class_loss(kernels::IndexUse::nll_target, "nll_loss", widened(counted_rows(x, counted)), targets,
                    counted, options.weight, 0, options.reduction);
}

}  // namespace heed
