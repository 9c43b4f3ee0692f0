// CUDA kernels that sum over rows, but for the layer norm alone, under every schedule of the emulator: the
// bits must not depend on it, and the builds with checks look for races and wrong addresses. What the results
// should be is tested with the operations, in tests/core/ops.
#include <heed/kernels/attention.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/linear.h>
#include <heed/kernels/optimizer.h>
#include <heed/kernels/reduce.h>
#include <heed/kernels/residual_layer_norm.h>
#include <heed/kernels/softmax.h>

#include "schedules.h"

namespace heed::testing {
namespace {

template <class T>
class RowSchedules : public ::testing::Test {};
TYPED_TEST_SUITE(RowSchedules, KernelTypes);

TYPED_TEST(RowSchedules, Reductions) {
  using T = TypeParam;
  struct Shape {
    int64_t kept, kept_stride, reduced, reduced_stride;
  };
  for (const Shape& s : {Shape{3, 72, 72, 1}, Shape{5, 33, 33, 1}, Shape{40, 1, 21, 40},
                         Shape{40, 1, 800, 40}, Shape{3, 12001, 12001, 1}})
    check_schedules("reductions", [&] {
      const size_t kept = static_cast<size_t>(s.kept);
      Buffer<T> x(numbers<T>(s.kept * s.reduced, 1));
      Buffer<float> sum(kept), most(kept), norm(kept);
      Buffer<int64_t> place(kept);
      Strided<2> outer = line<2>(s.kept);
      outer.strides[1][0] = s.kept_stride;
      const Strided<1> inner = line<1>(s.reduced, s.reduced_stride);
      using kernels::ReduceOp;
      cuda::reduce(kernels::Reduce<T>{ReduceOp::sum, sum.data(), x.data(), nullptr, 0.5, outer, inner});
      cuda::reduce(kernels::Reduce<T>{ReduceOp::norm, norm.data(), x.data(), nullptr, 1, outer, inner});
      cuda::reduce(kernels::Reduce<T>{ReduceOp::maximum, most.data(), x.data(), nullptr, 1, outer, inner});
      cuda::arg_reduce(
          kernels::ArgReduce<T>{false, place.data(), x.data(), outer, s.reduced, s.reduced_stride});
      return bytes(sum, norm, most, place);
    });
  check_schedules("cumulative sum", [&] {
    Buffer<T> x(numbers<T>(6 * 45, 1)), y(6 * 45);
    Strided<2> lines = line<2>(6, 45);
    cuda::cumulative_sum(kernels::CumulativeSum<T>{y.data(), x.data(), lines, 45, 1, 1, true, false});
    return bytes(y);
  });
}

TYPED_TEST(RowSchedules, Softmax) {
  using T = TypeParam;
  for (const int64_t cols : {33, 64, 1032, 8201}) {
    const int64_t rows = cols > 8000 ? 1 : 5, count = rows * cols;
    const size_t n = static_cast<size_t>(count);
    check_schedules("softmax forward", [&] {
      Buffer<T> x(numbers<T>(count, 1)), y(n);
      cuda::softmax_forward(kernels::SoftmaxForward<T>{x.data(), y.data(), rows, cols, false});
      return bytes(y);
    });
    check_schedules("softmax backward", [&] {
      Buffer<T> y(numbers<T>(count, 1)), gy(numbers<T>(count, 2)), gx(numbers<T>(count, 3));
      cuda::softmax_backward(
          kernels::SoftmaxBackward<T>{y.data(), gy.data(), gx.data(), rows, cols, false, true});
      return bytes(gx);
    });
    check_schedules("cross-entropy forward", [&] {
      Buffer<T> x(numbers<T>(count, 1)), glogits(n);
      Buffer<float> loss(1);
      Buffer<int64_t> counted(1), targets(ids(rows, cols, 3));
      cuda::cross_entropy_forward(kernels::CrossEntropyForward<T>{x.data(), targets.data(), kNoToken, 0.1,
                                                                  true, loss.data(), counted.data(),
                                                                  glogits.data(), rows, cols});
      return bytes(loss, counted, glogits);
    });
    check_schedules("cross-entropy backward", [&] {
      Buffer<T> glogits(numbers<T>(count, 1)), gx(numbers<T>(count, 2));
      Buffer<float> gloss(std::vector<float>{0.7f});
      cuda::cross_entropy_backward(
          kernels::CrossEntropyBackward<T>{glogits.data(), gloss.data(), gx.data(), count, true});
      return bytes(gx);
    });
  }
}

TYPED_TEST(RowSchedules, ResidualLayerNorm) {
  using T = TypeParam;
  for (const int64_t cols : {40, 33, 1032, 8201}) {
    const int64_t rows = cols > 8000 ? 2 : 6, count = rows * cols;
    const size_t n = static_cast<size_t>(count), height = static_cast<size_t>(rows);
    check_schedules("residual_layer_norm forward", [&] {
      Buffer<T> residual(numbers<T>(count, 1)), x(numbers<T>(count, 2)), weight(numbers<T>(cols, 3)), sum(n),
          y(n);
      Buffer<float> mean(height), rstd(height);
      cuda::residual_layer_norm_forward(kernels::ResidualLayerNormForward<T>{
          residual.data(), x.data(), weight.data(), nullptr, some_dropout(), sum.data(), y.data(),
          mean.data(), rstd.data(), rows, cols, 1e-5});
      return bytes(sum, y, mean, rstd);
    });
    check_schedules("residual_layer_norm backward", [&] {
      Buffer<T> gy(numbers<T>(count, 1)), gsum(numbers<T>(count, 2)), sum(numbers<T>(count, 3)),
          weight(numbers<T>(cols, 4)), gresidual(n), gx(n);
      Buffer<float> mean(numbers<float>(rows, 5)), rstd(numbers<float>(rows, 6)),
          gweight(static_cast<size_t>(cols)), gbias(static_cast<size_t>(cols));
      cuda::residual_layer_norm_backward(kernels::ResidualLayerNormBackward<T>{
          gy.data(), gsum.data(), sum.data(), weight.data(), mean.data(), rstd.data(), some_dropout(),
          gresidual.data(), gx.data(), gweight.data(), gbias.data(), false, false, false, false, rows, cols});
      return bytes(gresidual, gx, gweight, gbias);
    });
  }
}

TYPED_TEST(RowSchedules, Linear) {
  using T = TypeParam;
  for (const int64_t out : {40, 33})
    check_schedules("linear", [&] {
      const int64_t rows = 37, in = 6, count = rows * out;
      const size_t n = static_cast<size_t>(count);
      Buffer<T> x(numbers<T>(rows * in, 1)), weight(numbers<T>(out * in, 2)), bias(numbers<T>(out, 3)), y(n),
          pre(n), gy(numbers<T>(count, 4)), gpre(n);
      Buffer<float> gbias(static_cast<size_t>(out));
      const bool relu = out == 40;
      const Activation activation = relu ? Activation::relu : Activation::gelu;
      cuda::linear_forward(kernels::LinearForward<T>{x.data(), weight.data(), nullptr, bias.data(),
                                                     activation, some_dropout(), y.data(), pre.data(), rows,
                                                     in, out});
      cuda::linear_backward(kernels::LinearBackward<T>{gy.data(), relu ? y.data() : pre.data(), activation,
                                                       some_dropout(), gpre.data(), gbias.data(), false, rows,
                                                       out});
      return bytes(y, pre, gpre, gbias);
    });
}

TYPED_TEST(RowSchedules, OptimizerSteps) {
  using T = TypeParam;
  for (const int64_t count : {1000, 333})
    check_schedules("optimizer", [&] {
      Buffer<T> value(numbers<T>(count, 1));
      Buffer<float> master(numbers<float>(count, 1)), gradient(numbers<float>(count, 2)),
          m(numbers<float>(count, 3)), v(std::vector<float>(static_cast<size_t>(count), 0.5f)),
          buffer(static_cast<size_t>(count));
      Buffer<double> norm(1), rate(1);
      Buffer<int64_t> step(std::vector<int64_t>{2}), first(std::vector<int64_t>{1});
      cuda::gradient_norm(kernels::GradientNorm<float>{gradient.data(), count, norm.data()});
      cuda::set_rate(kernels::SetRate{rate.data(), 0.01});
      cuda::advance_step(kernels::AdvanceStep{step.data(), norm.data()});
      kernels::StepSlice<T> slice{value.data(),
                                  sizeof(T) == 2 ? master.data() : nullptr,
                                  gradient.data(),
                                  count,
                                  rate.data(),
                                  1,
                                  0.1,
                                  norm.data(),
                                  1.0};
      cuda::adam_step(kernels::AdamStep<T>{slice, m.data(), v.data(), 0.9, 0.98, 1e-9, true, step.data()});
      cuda::sgd_step(kernels::SgdStep<T>{slice, buffer.data(), 0.9, 0.0, true, first.data()});
      return bytes(value, master, gradient, m, v, buffer, norm, rate, step);
    });
}

/// Two sequences, and a row of no sequence behind them. A table of biases at width 5, for the generic
/// kernels.
template <class T>
class SomeAttention {
 public:
  static constexpr int64_t kHeads = 2, kLimit = 3, kEntries = kHeads * (2 * kLimit + 1);

  SomeAttention(int64_t width, int32_t length)
      : rows(length + 10),
        count(rows * kHeads * width),
        q(numbers<T>(count, 1)),
        k(numbers<T>(count, 2)),
        v(numbers<T>(count, 3)),
        relative(numbers<T>(kEntries, 5)),
        first(std::vector<int64_t>{0, length}),
        length_of(std::vector<int32_t>{length, 9}),
        scores{.q = read(q, width),
               .k = read(k, width),
               .segments = {2, first.data(), first.data(), length_of.data(), length_of.data(), length, length,
                            rows - 1, rows - 1},
               .query_rows = rows,
               .key_rows = rows,
               .heads = kHeads,
               .key_heads = kHeads,
               .width = width,
               .scale = 0.4,
               .visibility = {.causal = Causal::top_left},
               .bias = {.bias = nullptr,
                        .bias_stride = {},
                        .mask = nullptr,
                        .mask_stride = {},
                        .alibi_slopes = nullptr,
                        .relative = width == 5 ? relative.data() : nullptr,
                        .relative_limit = kLimit}} {}

  static kernels::HeadsView<const T> read(const Buffer<T>& x, int64_t width) {
    return {x.data(), kHeads * width, width};
  }
  kernels::HeadsView<const T> read(const Buffer<T>& x) const { return read(x, scores.width); }
  kernels::HeadsView<T> heads(const Buffer<T>& x) const {
    return {x.data(), kHeads * scores.width, scores.width};
  }

  const int64_t rows, count;
  const Buffer<T> q, k, v, relative;
  const Buffer<int64_t> first;
  const Buffer<int32_t> length_of;
  const kernels::AttentionScores<T> scores;
};

TYPED_TEST(RowSchedules, Attention) {
  using T = TypeParam;
  struct Shape {
    int64_t width;
    int32_t length;
  };
  for (const Shape& shape : {Shape{5, 40}, Shape{16, 40}, Shape{16, 130}}) {
    check_schedules("attention forward", [&] {
      const SomeAttention<T> a(shape.width, shape.length);
      const Buffer<T> out(static_cast<size_t>(a.count));
      const Buffer<float> lse(static_cast<size_t>(a.kHeads * a.rows));
      cuda::attention_forward(
          kernels::AttentionForward<T>{a.scores, a.read(a.v), some_dropout(), a.heads(out), lse.data()});
      return bytes(out, lse);
    });
    check_schedules("attention weights", [&] {
      const SomeAttention<T> a(shape.width, shape.length);
      const Buffer<float> lse(numbers<float>(a.kHeads * a.rows, 8)),
          weights(static_cast<size_t>(shape.length * shape.length));
      cuda::attention_weights(kernels::AttentionWeights<T>{a.scores, lse.data(), weights.data(), 0, 1});
      return bytes(weights);
    });
    check_schedules("attention backward", [&] {
      const SomeAttention<T> a(shape.width, shape.length);
      const size_t n = static_cast<size_t>(a.count);
      const Buffer<T> out(numbers<T>(a.count, 6)), gout(numbers<T>(a.count, 7)), gq(n), gk(n), gv(n);
      const Buffer<float> lse(numbers<float>(a.kHeads * a.rows, 8)), grelative(numbers<float>(a.kEntries, 9));
      cuda::attention_backward(kernels::AttentionBackward<T>{
          a.scores, a.read(a.v), some_dropout(), a.read(out), a.read(gout), lse.data(), a.heads(gq),
          a.heads(gk), a.heads(gv), false, false, false, nullptr,
          a.scores.bias.relative != nullptr ? grelative.data() : nullptr});
      return bytes(gq, gk, gv, grelative);
    });
  }
}

}  // namespace
}  // namespace heed::testing
