#include <heed/core/base/warning.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/losses/class_loss.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/cross_entropy.h>

namespace heed {
namespace {

// With weights of classes, or with the loss of each target.
Tensor composed_loss(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const Tensor counted = counted_targets(targets, options.ignore);
  check_counted("cross_entropy", sum(counted), targets, options);
  const Tensor wide = counted_rows(logits, counted).to(accumulator_options(logits).dtype);
  return class_loss(kernels::IndexUse::cross_entropy_target, "cross_entropy", log_softmax(wide), targets,
                    counted, options.weight, options.label_smoothing, options.reduction);
}

}  // namespace

void check_smoothing(const char* operation, double label_smoothing) {
  HEED_CHECK(label_smoothing >= 0 && label_smoothing < 1, ConfigError, operation, ": label_smoothing is ",
             label_smoothing, "; it must be in [0, 1)");
}

// Where no target counts. Not looked at on a device unless that is asked for: it would wait for the kernel.
void check_counted(const char* operation, const Tensor& counted, const Tensor& targets,
                   const CrossEntropyOptions& options) {
  static WarningCause ignored;
  if (targets.numel() == 0 && !options.require_target) return;
  if (!backend(counted.device()).host_memory && !options.require_target) return;
  if (counted.item<int64_t>() > 0) return;
  HEED_CHECK(!options.require_target, DataError, operation, ": none of the ", targets.numel(),
             " targets counts: each is the ignored id ", options.ignore);
  ignored.warn(concat(operation, ": all ", targets.numel(), " targets are the ignored id ", options.ignore,
                      "; the loss is 0 and so are its gradients"));
}

void scale_gradient(const Tensor& gradient, const GradIn& gy, GradOut& gx, int input) {
  const auto scale_to = [&](const GradSlot& to) {
    visit_floating(gradient.dtype(), "cross_entropy", [&]<class T>() {
      HEED_DISPATCH(gradient.device(), cross_entropy_backward,
                    kernels::CrossEntropyBackward<T>{.glogits = gradient.data<T>(),
                                                     .gloss = gy[0].data<accumulator_t<T>>(),
                                                     .gx = to.tensor.data<T>(),
                                                     .count = gradient.numel(),
                                                     .accumulate = to.accumulate});
    });
  };
  const bool on_device = !backend(gradient.device()).host_memory;
  const bool in_place = on_device && gy.last();
  if (in_place) scale_to({gradient, false});
  if (in_place || (!on_device && gy[0].item<double>() == 1)) return gx.add(input, gradient);
  scale_to(gradient.dtype() == accumulator_options(gradient).dtype ? gx.into_accumulator(input)
                                                                   : gx.into(input));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  check_classes("cross_entropy", logits, targets, options.weight);
  check_smoothing("cross_entropy", options.label_smoothing);
  const bool fused = options.reduction == Reduction::mean || options.reduction == Reduction::sum;
  if (!fused || options.weight.defined() ||
      !detail::has_kernel<kernels::CrossEntropyForward>(logits.device(), logits.dtype()))
    return composed_loss(logits, targets, options);
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
  check_counted("cross_entropy", counted, targets, options);
  return record("cross_entropy", {logits}, loss, [glogits = save(glogits)](const GradIn& gy, GradOut& gx) {
    scale_gradient(*glogits, gy, gx, 0);
  });
}

}  // namespace heed
