#include <heed/core/base/warning.h>
#include <heed/core/dispatch.h>
#include <heed/core/ops.h>
#include <heed/core/ops/class_loss.h>
#include <heed/core/ops/common.h>
#include <heed/kernels/cross_entropy.h>

namespace heed {
namespace {

void check(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  check_classes("cross_entropy", logits, targets, options.weight);
  HEED_CHECK(options.label_smoothing >= 0 && options.label_smoothing < 1, ConfigError,
             "cross_entropy: label_smoothing is ", options.label_smoothing, "; it must be in [0, 1)");
}

// Where no target counts. Not looked at on a device unless that is asked for: it would wait for the kernel.
void check_counted(const Tensor& counted, const Tensor& targets, const CrossEntropyOptions& options) {
  static WarningCause ignored;
  if (targets.numel() == 0 && !options.require_target) return;
  if (!counted.device().is_cpu() && !options.require_target) return;
  if (counted.item<int64_t>() > 0) return;
  HEED_CHECK(!options.require_target, DataError, "cross_entropy: none of the ", targets.numel(),
             " targets counts: each is the ignored id ", options.ignore);
  ignored.warn(concat("cross_entropy: all ", targets.numel(), " targets are the ignored id ", options.ignore,
                      "; the loss is 0 and so are its gradients"));
}

// With weights of classes, or with the loss of each target.
Tensor composed(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const Tensor counted = counted_targets(targets, options.ignore);
  check_counted(sum(counted), targets, options);
  const Tensor wide = counted_rows(logits, counted).to(accumulator_options(logits).dtype);
  return class_loss(kernels::IndexUse::cross_entropy_target, "cross_entropy", log_softmax(wide), targets,
                    counted, options.weight, options.label_smoothing, options.reduction);
}

void scale(const Tensor& glogits, const Tensor& gloss, const GradSlot& to) {
  visit_floating(glogits.dtype(), "cross_entropy", [&]<class T>() {
    HEED_DISPATCH(glogits.device(), cross_entropy_backward,
                  kernels::CrossEntropyBackward<T>{.glogits = glogits.data<T>(),
                                                   .gloss = gloss.data<accumulator_t<T>>(),
                                                   .gx = to.tensor.data<T>(),
                                                   .count = glogits.numel(),
                                                   .accumulate = to.accumulate});
  });
}

// Where the backward starts, the upstream gradient is 1 and there is nothing to scale. Only the device knows
// that of its own: it looks, and scales in place, which it may do once.
void backward(const Tensor& glogits, const GradIn& gy, GradOut& gx) {
  const bool on_device = !glogits.device().is_cpu();
  const bool in_place = on_device && gy.last();
  if (in_place) scale(glogits, gy[0], {glogits, false});
  if (in_place || (!on_device && gy[0].item<double>() == 1)) return gx.add(0, glogits);
  scale(glogits, gy[0], gx.into(0));
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  check(logits, targets, options);
  const bool fused = options.reduction == Reduction::mean || options.reduction == Reduction::sum;
  if (!fused || options.weight.defined()) return composed(logits, targets, options);
  const int64_t classes = logits.size(-1), rows = targets.numel();
  const Tensor input = logits.contiguous(), ids = targets.contiguous();
  const Tensor loss = empty({}, accumulator_options(logits));
  const Tensor counted = empty({}, {DType::i64, logits.device()});
  const Tensor glogits = needs_grad({logits}) ? empty_like(input) : Tensor();
  visit_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    HEED_DISPATCH(logits.device(), cross_entropy_forward,
                  kernels::CrossEntropyForward<T>{.logits = input.data<T>(),
                                                  .targets = ids.data<int64_t>(),
                                                  .ignore = options.ignore,
                                                  .label_smoothing = options.label_smoothing,
                                                  .mean = options.reduction == Reduction::mean,
                                                  .loss = loss.data<accumulator_t<T>>(),
                                                  .counted = counted.data<int64_t>(),
                                                  .glogits = data_or_null<T>(glogits),
                                                  .rows = rows,
                                                  .classes = classes});
  });
  check_counted(counted, targets, options);
  return record("cross_entropy", {logits}, loss,
                [glogits = save(glogits)](const GradIn& gy, GradOut& gx) { backward(*glogits, gy, gx); });
}

}  // namespace heed
