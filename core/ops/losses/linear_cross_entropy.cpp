#include <algorithm>

#include <heed/core/base/int_math.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/losses/class_loss.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/gemm.h>

namespace heed {
namespace {

// Bytes of a slice's logits: enough rows that adding to the weight's gradient takes little beside the
// products.
constexpr int64_t kSliceBytes = int64_t{512} << 20;
constexpr int64_t kFewestRows = 64;

struct Sizes {
  int64_t rows, in, classes;
  int64_t columns;  // of logits: their rows begin where the device likes
  int64_t slice;    // rows
};

template <class T>
Sizes sizes_of(const Tensor& x, const Tensor& weight, int64_t slice) {
  const int64_t in = x.size(-1), rows = rows_and_cols(x, "linear_cross_entropy").first,
                classes = weight.shape()[0];
  constexpr int64_t kElement = sizeof(T);
  const int64_t vector = ceil_divide(backend(x.device()).row_alignment, kElement),
                columns = ceil_divide(classes, vector) * vector;
  const int64_t fit = kSliceBytes / (columns * kElement) / kFewestRows * kFewestRows;
  return {rows, in, classes, columns, std::min(rows, slice > 0 ? slice : std::max(fit, kFewestRows))};
}

/// The weight with as many rows as logits have columns, zeros in those that are no class.
Tensor padded(const Tensor& weight, int64_t columns) {
  const int64_t classes = weight.shape()[0];
  if (columns == classes) return weight;
  const Tensor all = empty({columns, weight.shape()[1]}, weight.options());
  all.slice(0, 0, classes).copy_(weight.detach());
  all.slice(0, classes, columns).zero_();
  return all;
}

struct Gradients {
  Tensor x, weight;  // each undefined if not wanted
};

/// The losses of rows [first, first + rows), and what they add to the gradients.
template <class T>
void run_slice(const Sizes& s, int64_t first, const Tensor& x, const Tensor& weight, const Tensor& targets,
               const CrossEntropyOptions& options, const Tensor& logits, const Tensor& glogits,
               const Tensor& losses, const Tensor& counted, const Gradients& gradients) {
  using A = accumulator_t<T>;
  const Device device = x.device();
  const int64_t rows = std::min(s.slice, s.rows - first);
  const T* const slice = x.data<T>() + first * s.in;
  HEED_DISPATCH(device, gemm,
                kernels::Gemm<T>{.a = slice,
                                 .b = weight.data<T>(),
                                 .c = logits.data<T>(),
                                 .m = rows,
                                 .n = s.columns,
                                 .k = s.in,
                                 .lda = s.in,
                                 .ldb = s.in,
                                 .ldc = s.columns,
                                 .transpose_b = true});
  HEED_DISPATCH(device, cross_entropy_forward,
                kernels::CrossEntropyForward<T>{.logits = logits.data<T>(),
                                                .targets = targets.data<int64_t>() + first,
                                                .ignore = options.ignore,
                                                .label_smoothing = options.label_smoothing,
                                                .mean = options.reduction == Reduction::mean,
                                                .loss = losses.data<A>() + first / s.slice,
                                                .counted = counted.data<int64_t>(),
                                                .glogits = data_or_null<T>(glogits),
                                                .rows = rows,
                                                .classes = s.classes,
                                                .stride = s.columns,
                                                .counted_targets = targets.data<int64_t>(),
                                                .counted_rows = s.rows});
  if (gradients.x.defined())
    HEED_DISPATCH(device, gemm,
                  kernels::Gemm<T>{.a = glogits.data<T>(),
                                   .b = weight.data<T>(),
                                   .c = gradients.x.data<T>() + first * s.in,
                                   .m = rows,
                                   .n = s.in,
                                   .k = s.columns,
                                   .lda = s.columns,
                                   .ldb = s.in,
                                   .ldc = s.in});
  if (gradients.weight.defined())
    HEED_DISPATCH(device, gemm,
                  kernels::Gemm<T, A>{.a = glogits.data<T>(),
                                      .b = slice,
                                      .c = gradients.weight.data<A>(),
                                      .m = s.columns,
                                      .n = s.in,
                                      .k = rows,
                                      .lda = s.columns,
                                      .ldb = s.in,
                                      .ldc = s.in,
                                      .transpose_a = true,
                                      .accumulate = first > 0});
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const CrossEntropyOptions& options, int64_t slice) {
  constexpr const char* kWhat = "linear_cross_entropy";
  HEED_CHECK(x.rank() > 0 && weight.rank() == 2 && weight.shape()[1] == x.size(-1), ShapeError, kWhat,
             ": weight is ", weight.shape(), ", expected [classes, in] for an input [.., in] of ", x.shape());
  check_same_kind(x, weight, kWhat);
  check_floating(x, kWhat);
  const bool fused = options.reduction == Reduction::mean || options.reduction == Reduction::sum;
  if (!fused || options.weight.defined() || weight.storage()->int8() || x.numel() == 0 ||
      !detail::has_kernel<kernels::CrossEntropyForward>(x.device(), x.dtype()))
    return cross_entropy(linear(x, weight), targets, options);
  HEED_CHECK(weight.shape()[0] > 0, ShapeError, kWhat, ": weight is ", weight.shape(),
             "; at least one class");
  check_targets(kWhat, x, targets);
  check_smoothing(kWhat, options.label_smoothing);
  HEED_CHECK(slice >= 0, ConfigError, kWhat, ": slices of ", slice, " rows");

  const Contiguous input(x), matrix(weight), ids(targets);
  const Tensor counted = empty({}, {DType::i64, x.device()});
  Gradients gradients;
  if (needs_grad({x})) gradients.x = empty_like(*input);
  Tensor losses;
  visit_floating(x.dtype(), kWhat, [&]<class T>() {
    const Sizes s = sizes_of<T>(*input, *matrix, slice);
    losses = empty({ceil_divide(s.rows, s.slice)}, accumulator_options(x));
    if (needs_grad({weight})) gradients.weight = empty({s.columns, s.in}, accumulator_options(weight));
    const Tensor rows_of_classes = padded(*matrix, s.columns);
    const Tensor logits = empty({s.slice, s.columns}, x.options());
    const bool wanted = gradients.x.defined() || gradients.weight.defined();
    const Tensor glogits = wanted ? empty_like(logits) : Tensor();
    for (int64_t first = 0; first < s.rows; first += s.slice)
      run_slice<T>(s, first, *input, rows_of_classes, *ids, options, logits, glogits, losses, counted,
                   gradients);
  });
  check_counted(kWhat, counted, targets, options);
  if (gradients.weight.defined()) gradients.weight = gradients.weight.slice(0, 0, weight.shape()[0]);
  const Tensor loss = sum(losses);
  return record(kWhat, {x, weight}, loss,
                [gx = save(gradients.x), gweight = save(gradients.weight)](const GradIn& gy, GradOut& out) {
                  if (out.wants(0)) scale_gradient(*gx, gy, out, 0);
                  if (out.wants(1)) scale_gradient(*gweight, gy, out, 1);
                });
}

}  // namespace heed
