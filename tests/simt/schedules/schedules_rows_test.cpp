// CUDA kernels that sum over rows, but for the layer norm alone, under every schedule of the emulator: the
// bits must not depend on it, and the builds with checks look for races and wrong addresses. What the results
// should be is tested with the operations, in tests/core/ops.
#include <algorithm>
#include <limits>

#include <heed/kernels/attention.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/linear.h>
#include <heed/kernels/optimizer.h>
#include <heed/kernels/reduce.h>
#include <heed/kernels/softmax.h>

#include "schedules.h"

namespace heed::testing {
namespace {

template <class T>
class RowSchedules : public ::testing::Test {};
TYPED_TEST_SUITE(RowSchedules, KernelTypes);

TYPED_TEST(RowSchedules, Reductions) {
  using T = TypeParam;
  using kernels::ReduceOp;
  struct Shape {
    int64_t kept, keep_mask_stride, reduced, reduced_stride;
  };
  for (const Shape& s : {Shape{1, 1, 1, 1}, Shape{3, 72, 72, 1}, Shape{5, 33, 33, 1}, Shape{40, 1, 21, 40},
                         Shape{40, 1, 800, 40}, Shape{2, 12001, 12001, 1}}) {
    Strided<2> outer = line<2>(s.kept);
    outer.strides[1][0] = s.keep_mask_stride;
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::norm, ReduceOp::sum_exponential, ReduceOp::maximum})
      check_schedules("reduce", [&] {
        const Buffer<T> x(numbers<T>(s.kept * s.reduced, 1));
        const Buffer<float> centre(numbers<float>(s.kept, 2)), y(s.kept);
        cuda::reduce(kernels::Reduce<T>{
            op, y.data(), x.data(), op == ReduceOp::sum_exponential ? centre.data() : nullptr,
            op == ReduceOp::sum ? 0.5 : 1, outer, line<1>(s.reduced, s.reduced_stride)});
        return bytes(y);
      });
    check_schedules("arg_reduce", [&] {
      const Buffer<T> x(numbers<T>(s.kept * s.reduced, 1));
      const Buffer<int64_t> place(s.kept);
      cuda::arg_reduce(
          kernels::ArgReduce<T>{false, place.data(), x.data(), outer, s.reduced, s.reduced_stride});
      return bytes(place);
    });
  }
}

TYPED_TEST(RowSchedules, CumulativeSums) {
  using T = TypeParam;
  for (const int64_t n : {1, 33, 45, 257})
    for (const bool reverse : {true, false})
      check_schedules("cumulative sum", [&] {
        const Buffer<T> x(numbers<T>(6 * n, 1)), y(numbers<T>(6 * n, 2));
        cuda::cumsum(kernels::CumSum<T>{y.data(), x.data(), line<2>(6, n), n, 1, 1, reverse, !reverse});
        return bytes(y);
      });
}

// Rows of one element, of a warp, of a block, and too long to be kept in registers.
int64_t few_rows(int64_t cols) { return cols > 8000 ? 1 : 5; }

TYPED_TEST(RowSchedules, Softmax) {
  using T = TypeParam;
  for (const int64_t cols : {1, 33, 64, 1032, 8201})
    for (const bool log : {false, true}) {
      const int64_t rows = few_rows(cols), count = rows * cols;
      check_schedules("softmax forward", [&] {
        std::vector<T> values = numbers<T>(count, 1);  // of which a row is hidden
        std::fill_n(values.begin(), rows > 1 ? cols : 0, T(-std::numeric_limits<float>::infinity()));
        const Buffer<T> x(values), y(count);
        cuda::softmax_forward(kernels::SoftmaxForward<T>{x.data(), y.data(), rows, cols, log});
        return bytes(y);
      });
      check_schedules("softmax backward", [&] {
        const Buffer<T> y(numbers<T>(count, 1)), gy(numbers<T>(count, 2)), gx(numbers<T>(count, 3));
        cuda::softmax_backward(
            kernels::SoftmaxBackward<T>{y.data(), gy.data(), gx.data(), rows, cols, log, !log});
        return bytes(gx);
      });
    }
}

TYPED_TEST(RowSchedules, CrossEntropy) {
  using T = TypeParam;
  struct Options {
    bool mean, gradient;
    double smoothing;
    bool all_ignored;
  };
  for (const int64_t cols : {1, 33, 64, 1032, 8201})
    for (const Options& o :
         {Options{true, true, 0.1, false}, Options{false, false, 0, false}, Options{true, true, 0, true}}) {
      const int64_t rows = few_rows(cols), count = rows * cols;
      check_schedules("cross-entropy forward", [&] {
        const std::vector<int64_t> none(static_cast<size_t>(rows), kNoToken);
        const Buffer<T> x(numbers<T>(count, 1)), glogits(count);
        const Buffer<float> loss(1);
        const Buffer<int64_t> counted(1), targets(o.all_ignored ? none : ids(rows, cols, 3));
        cuda::cross_entropy_forward(kernels::CrossEntropyForward<T>{
            x.data(), targets.data(), kNoToken, o.smoothing, o.mean, loss.data(), counted.data(),
            o.gradient ? glogits.data() : nullptr, rows, cols});
        return o.gradient ? bytes(loss, counted, glogits) : bytes(loss, counted);
      });
    }
  for (const int64_t count : {1, 83, 1025})
    check_schedules("cross-entropy backward", [&] {
      const Buffer<T> glogits(numbers<T>(count, 1)), gx(numbers<T>(count, 2));
      const Buffer<float> gloss(std::vector<float>{0.7f});
      cuda::cross_entropy_backward(
          kernels::CrossEntropyBackward<T>{glogits.data(), gloss.data(), gx.data(), count, count != 83});
      return bytes(gx);
    });
  for (const float scale : {1.0f, 0.7f})
    for (const int64_t count : {1, 83, 1025})
      check_schedules("cross-entropy backward in place", [&] {
        const Buffer<T> g(numbers<T>(count, 1));
        const Buffer<float> gloss(std::vector<float>{scale});
        cuda::cross_entropy_backward(
            kernels::CrossEntropyBackward<T>{g.data(), gloss.data(), g.data(), count, false});
        return bytes(g);
      });
}

TYPED_TEST(RowSchedules, Linear) {
  using T = TypeParam;
  const int64_t rows = 37, in = 6;
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu})
    for (const int64_t out : {1, 33, 40}) {
      const int64_t count = rows * out;
      const bool biased = out != 33, plain = activation == Activation::none;
      check_schedules("linear forward", [&] {
        const Buffer<T> x(numbers<T>(rows * in, 1)), weight(numbers<T>(out * in, 2)),
            bias(numbers<T>(out, 3)), y(count), pre(numbers<T>(count, 5));
        cuda::linear_forward(
            kernels::LinearForward<T>{.x = x.data(),
                                      .weight = weight.data(),
                                      .copies = nullptr,
                                      .bias = biased ? bias.data() : nullptr,
                                      .activation = activation,
                                      .dropout = plain ? Dropout{} : some_dropout(),
                                      .y = y.data(),
                                      .pre_activation = activation == Activation::gelu ? pre.data() : nullptr,
                                      .rows = rows,
                                      .in = in,
                                      .out = out});
        return bytes(y, pre);
      });
      check_schedules("linear activation backward", [&] {
        const Buffer<T> gy(numbers<T>(count, 4)), kept(numbers<T>(count, 5)), gpre(numbers<T>(count, 6));
        const Buffer<float> gbias(numbers<float>(out, 7));
        cuda::linear_activation_backward(kernels::LinearActivationBackward<T>{
            gy.data(), plain ? nullptr : kept.data(), activation, plain ? Dropout{} : some_dropout(),
            plain ? nullptr : gpre.data(), plain || biased ? gbias.data() : nullptr, out == 1, rows, out});
        return bytes(gpre, gbias);
      });
      if (!plain) continue;
      check_schedules("linear backward", [&] {
        const Buffer<T> g(numbers<T>(count, 4)), x(numbers<T>(rows * in, 1)), weight(numbers<T>(out * in, 2)),
            gx(numbers<T>(rows * in, 5));
        const Buffer<float> gbias(numbers<float>(out, 6)), gweight(numbers<float>(out * in, 7));
        cuda::linear_backward(kernels::LinearBackward<T>{g.data(), biased ? gbias.data() : nullptr, out == 1,
                                                         x.data(), gweight.data(), out == 1, weight.data(),
                                                         gx.data(), out == 1, rows, in, out});
        return bytes(gbias, gweight, gx);
      });
    }
}

// Products that fill no tile, in one launch or more than one. Their operands lie one after the other, so that
// some can be read by vectors.
TYPED_TEST(RowSchedules, WeightProducts) {
  using T = TypeParam;
  struct Size {
    int64_t rows, in, out;
    bool biased, accumulate;
  };
  const std::vector<Size> few{{37, 8, 72, true, false}, {70, 66, 8, true, true}, {64, 64, 64, false, false},
                              {40, 7, 5, true, false},  {0, 3, 5, true, false},  {1, 1, 1, false, true},
                              {5, 16, 0, true, false},  {3, 16, 8, true, true}};
  for (const std::vector<Size>& sizes : {few, std::vector<Size>(60, {3, 2, 2, true, true})}) {
    const auto total = [&](const auto& elements) {
      int64_t sum = 0;
      for (const Size& size : sizes) sum += elements(size);
      return sum;
    };
    check_schedules("weight products", [&] {
      const Buffer<T> g(numbers<T>(total([](const Size&s) { return s.rows * s.out; }), 1)),
          x(numbers<T>(total([](const Size&s) { return s.rows * s.in; }), 2));
      const Buffer<float> gweight(numbers<float>(total([](const Size&s) { return s.in * s.out; }), 3)),
          gbias(numbers<float>(total([](const Size&s) { return s.out; }), 4));
      std::vector<kernels::WeightProduct<T>> products;
      const T *g_at = g.data(), *x_at = x.data();
      float *gweight_at = gweight.data(), *gbias_at = gbias.data();
      for (const Size& s : sizes) {
        products.push_back({g_at, x_at, gweight_at, s.biased ? gbias_at : nullptr, s.accumulate,
                            !s.accumulate, s.rows, s.in, s.out});
        g_at += s.rows * s.out;
        x_at += s.rows * s.in;
        gweight_at += s.in * s.out;
        gbias_at += s.out;
      }
      cuda::weight_products(kernels::WeightProducts<T>{products});
      return bytes(gweight, gbias);
    });
  }
}

// f(first, size) for `count` elements of several parameters: more than a launch has, some of which begin at
// odd addresses.
template <class F>
void cut(int64_t count, const F& f) {
  int parts = 0;
  for (int64_t first = 0, size = 1; first < count; first += size, size = size % 32 + 1, ++parts) {
    size = std::min(parts < 200 ? size : count, count - first);
    f(first, size);
  }
}

// What changes from step to step, for `count` gradients.
struct StepState {
  explicit StepState(int64_t count, const std::vector<int64_t>& numbers_of_steps = {1, 2, 7})
      : gradient(numbers<float>(count, 2)),
        norm(std::vector<double>{3}),
        rate(std::vector<double>{0.01}),
        steps(numbers_of_steps) {}
  const Buffer<float> gradient;
  const Buffer<double> norm, rate;
  const Buffer<int64_t> steps;  // which the parameters have in turn
};

TYPED_TEST(RowSchedules, OptimizerSteps) {
  using T = TypeParam;
  for (const int64_t count : {1, 333, 1400})
    for (const bool plain : {true, false}) {
      std::vector<kernels::StepPart<T>> parts;
      const auto slice = [&](const Buffer<T>& value, const Buffer<float>& master, const StepState& state) {
        parts.clear();
        cut(count, [&](int64_t first, int64_t size) {
          parts.push_back({state.gradient.data() + first, size, value.data() + first, first,
                           static_cast<int64_t>(parts.size()) % 3});
        });
        return kernels::StepSlice<T>{.parts = parts,
                                     .master = sizeof(T) == 2 ? master.data() : nullptr,
                                     .written = !plain,
                                     .steps = state.steps.data(),
                                     .lr = state.rate.data(),
                                     .lr_factor = 1,
                                     .weight_decay = plain ? 0 : 0.1,
                                     .gradient_norm = plain ? nullptr : state.norm.data(),
                                     .clip = 1.0};
      };
      check_schedules("adam_step", [&] {
        const Buffer<T> value(numbers<T>(count, 1));
        const Buffer<float> master(numbers<float>(count, 1)), m(numbers<float>(count, 3)),
            v(std::vector<float>(static_cast<size_t>(count), 0.5f));
        const StepState state(count);
        cuda::adam_step(
            kernels::AdamStep<T>{slice(value, master, state), m.data(), v.data(), 0.9, 0.98, 1e-9, !plain});
        return bytes(value, master, m, v);
      });
      const auto sgd_step = [&](const Buffer<float>& buffer, const std::vector<int64_t>& steps) {
        const Buffer<T> value(numbers<T>(count, 1));
        const Buffer<float> master(numbers<float>(count, 1));
        const StepState state(count, steps);
        cuda::sgd_step(kernels::SgdStep<T>{slice(value, master, state), plain ? nullptr : buffer.data(),
                                           plain ? 0 : 0.9, 0.0, !plain});
        return plain ? bytes(value, master) : bytes(value, master, buffer);
      };
      check_schedules("sgd_step", [&] {
        return sgd_step(Buffer<float>(numbers<float>(count, 3)), {1, 2, 7});
      });
      check_schedules("first sgd_step, which writes what it has not read", [&] {
        return sgd_step(Buffer<float>(count), {1, 1, 1});
      });
      check_schedules("lion_step", [&] {
        const Buffer<T> value(numbers<T>(count, 1));
        const Buffer<float> master(numbers<float>(count, 1)), m(numbers<float>(count, 3));
        const StepState state(count);
        cuda::lion_step(kernels::LionStep<T>{slice(value, master, state), m.data(), 0.9, 0.99});
        return bytes(value, master, m);
      });
    }
}

TEST(StepSchedules, NormRateAndStep) {
  for (const int64_t count : {1, 333, 1000, 70001})
    check_schedules("gradient_norm", [&] {
      const Buffer<float> gradient(numbers<float>(count, 2));
      const Buffer<double> norm(1);
      std::vector<kernels::GradientPart<float>> parts;
      cut(count, [&](int64_t first, int64_t size) { parts.push_back({gradient.data() + first, size}); });
      cuda::gradient_norm(kernels::GradientNorm<float>{parts, norm.data()});
      return bytes(norm);
    });
  check_schedules("set_lr and advance_steps", [&] {
    const Buffer<double> rate(1), norm(std::vector<double>{3});
    const Buffer<int64_t> step(std::vector<int64_t>{2}), steps(std::vector<int64_t>(1000, 3));
    std::vector<int64_t> stepped;  // more than a launch has
    for (int64_t i = 0; i < 700; ++i) stepped.push_back(999 - i);
    cuda::set_lr(kernels::SetLr{rate.data(), 0.01});
    cuda::advance_steps(kernels::AdvanceSteps{step.data(), steps.data(), stepped, norm.data()});
    return bytes(rate, step, steps);
  });
}

struct AttentionShape {
  int64_t width;
  int32_t first, second;  // lengths
  bool blocks = false;    // a pattern of blocks of 64: all but (1, 0)
};

/// Two sequences, and a row of no sequence behind them. A table of biases at width 5, for the generic
/// kernels.
template <class T>
class SomeAttention {
 public:
  static constexpr int64_t kHeads = 2, kLimit = 3, kEntries = kHeads * (2 * kLimit + 1);

  SomeAttention(const AttentionShape& shape)
      : rows(shape.first + shape.second + 1),
        count(rows * kHeads * shape.width),
        q(numbers<T>(count, 1)),
        k(numbers<T>(count, 2)),
        v(numbers<T>(count, 3)),
        relative(numbers<T>(kEntries, 5)),
        first(std::vector<int64_t>{0, shape.first}),
        length_of(std::vector<int32_t>{shape.first, shape.second}),
        pattern(std::vector<uint32_t>{7, 6, 7, 5, 7, 7}),
        scores{.q = read(q, shape.width),
               .k = read(k, shape.width),
               .segments = {2, first.data(), first.data(), length_of.data(), length_of.data(),
                            std::max(shape.first, shape.second), std::max(shape.first, shape.second),
                            rows - 1, rows - 1},
               .query_rows = rows,
               .key_rows = rows,
               .heads = kHeads,
               .key_heads = kHeads,
               .width = shape.width,
               .scale = 0.4,
               .logit_cap = shape.width == 5 ? 1.5 : 0.0,
               .visibility = {Visibility{.causal = Causal::top_left},
                              shape.blocks ? BlockPatternView{.of_queries = pattern.data(),
                                                              .of_keys = pattern.data() + 3,
                                                              .query_blocks = 3,
                                                              .key_blocks = 3}
                                           : BlockPatternView()},
               .bias = {.bias = nullptr,
                        .bias_stride = {},
                        .mask = nullptr,
                        .mask_stride = {},
                        .alibi_slopes = nullptr,
                        .relative = shape.width == 5 ? relative.data() : nullptr,
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
  const Buffer<uint32_t> pattern;
  const kernels::AttentionScores<T> scores;
};

TYPED_TEST(RowSchedules, Attention) {
  using T = TypeParam;
  constexpr int32_t kLong = sizeof(T) == 2 ? 129 : 33;  // floats have but one kernel
  for (const AttentionShape& shape :
       {AttentionShape{5, 40, 9}, AttentionShape{16, 40, 9}, AttentionShape{16, kLong, 9},
        AttentionShape{16, 1, 0}, AttentionShape{5, 1, 0}, AttentionShape{64, 17, 16},
        AttentionShape{128, 3, 1}, AttentionShape{16, 70, 9, true}, AttentionShape{16, 130, 9, true},
        AttentionShape{5, 70, 9, true}}) {
    check_schedules("attention forward", [&] {
      const SomeAttention<T> a(shape);
      const Buffer<T> out(a.count);
      const Buffer<float> lse(a.kHeads * a.rows);
      cuda::attention_forward(
          kernels::AttentionForward<T>{a.scores, a.read(a.v), some_dropout(), a.heads(out), lse.data()});
      return bytes(out, lse);
    });
    check_schedules("attention weights", [&] {
      const SomeAttention<T> a(shape);
      const Buffer<float> lse(numbers<float>(a.kHeads * a.rows, 8)), weights(shape.first * shape.first);
      cuda::attention_weights(
          kernels::AttentionWeights<T>{a.scores, lse.data(), weights.data(), 0, 1, 0, shape.first});
      return bytes(weights);
    });
    check_schedules("attention backward", [&] {
      const SomeAttention<T> a(shape);
      const Buffer<T> out(numbers<T>(a.count, 6)), gout(numbers<T>(a.count, 7)), gq(a.count), gk(a.count),
          gv(a.count);
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
