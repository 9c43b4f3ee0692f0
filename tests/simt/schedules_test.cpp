// Every CUDA kernel but the layer norm's under every schedule of the emulator: the bits must not depend on
// it, and the builds with checks look for races and wrong addresses. What the results should be is tested
// with the operations, in tests/core/ops.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/philox.h>
#include <heed/kernels/activation.h>
#include <heed/kernels/attention.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/dropout.h>
#include <heed/kernels/elementwise.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/indexing.h>
#include <heed/kernels/linear.h>
#include <heed/kernels/optimizer.h>
#include <heed/kernels/random.h>
#include <heed/kernels/reduce.h>
#include <heed/kernels/residual_layer_norm.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/softmax.h>

#include "device_buffer.h"

namespace heed {
namespace {

using testing::bytes_of;
using testing::DeviceBuffer;
using Bytes = std::vector<unsigned char>;

uint32_t random_word(size_t i, uint32_t seed) {
  return philox(static_cast<uint32_t>(i), 0, 0, 0, seed, 0).word[0];
}

template <class T>
std::vector<T> numbers(int64_t count, uint32_t seed) {
  std::vector<T> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = T(static_cast<float>(random_word(i, seed) >> 8) * 0x1p-23f - 1.0f);
  return out;
}

std::vector<int64_t> ids(int64_t count, int64_t below, uint32_t seed) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = i % 11 == 3 ? kNoToken : static_cast<int64_t>(random_word(i, seed)) % below;
  return out;
}

Dropout some_dropout() { return make_dropout(0.3, {.seed = 5, .base = nullptr, .offset = 9}); }

/// The bytes of all buffers, one after the other.
template <class... Buffers>
Bytes bytes(const Buffers&... buffers) {
  cuda::synchronize(0);
  Bytes all;
  const auto append = [&](const Bytes& more) { all.insert(all.end(), more.begin(), more.end()); };
  (append(bytes_of(buffers.get())), ...);
  return all;
}

void check_schedules(const std::string& name, const std::function<Bytes()>& run) {
  SCOPED_TRACE(name);
  Bytes first;
  emulator::each_schedule([&](const std::string& schedule) {
    SCOPED_TRACE(schedule);
    const Bytes now = run();
    if (first.empty()) first = now;
    EXPECT_EQ(now, first) << "the results depend on the schedule";
  });
  EXPECT_FALSE(first.empty());
}

// [rows, cols] against operands that have both axes (2), the columns (1) or are turned over (-1).
template <int kOperands>
Strided<kOperands> space(int64_t rows, int64_t cols, const int (&kinds)[kOperands]) {
  Strided<kOperands> index{};
  index.rank = 2;
  index.sizes[0] = rows, index.sizes[1] = cols;
  for (int k = 0; k < kOperands; ++k) {
    index.strides[k][0] = kinds[k] == 2 ? cols : kinds[k] == -1 ? 1 : 0;
    index.strides[k][1] = kinds[k] == -1 ? rows : 1;
  }
  return index;
}

template <int kOperands>
Strided<kOperands> line(int64_t count, int64_t stride = 1) {
  Strided<kOperands> index{};
  index.rank = 1;
  index.sizes[0] = count;
  for (int k = 0; k < kOperands; ++k) index.strides[k][0] = stride;
  return index;
}

template <class T>
class Schedules : public ::testing::Test {};
using Types = ::testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(Schedules, Types);

TYPED_TEST(Schedules, Elementwise) {
  using T = TypeParam;
  for (const int64_t cols : {40, 37}) {
    const int64_t rows = 9, count = rows * cols;
    check_schedules("copies, sums and choices", [&] {
      DeviceBuffer<T> x(numbers<T>(count, 1)), row(numbers<T>(cols, 2)), turned(static_cast<size_t>(count)),
          sum(static_cast<size_t>(count)), chosen(static_cast<size_t>(count)),
          filled(static_cast<size_t>(count));
      DeviceBuffer<float> wide(numbers<float>(count, 3));
      DeviceBuffer<unsigned char> less(static_cast<size_t>(count));
      bool* const flags = reinterpret_cast<bool*>(less.data());
      cuda::copy(kernels::Copy<T, T>{turned.data(), x.data(), space<2>(rows, cols, {2, -1}), false});
      cuda::copy(kernels::Copy<float, T>{wide.data(), x.data(), line<2>(count), true});
      cuda::fill(kernels::Fill<T>{filled.data(), T(2.5f), line<1>(count)});
      cuda::binary(kernels::Binary<T>{kernels::BinaryOp::add, sum.data(), x.data(), row.data(), T(0.0f),
                                      space<3>(rows, cols, {2, 2, 1})});
      cuda::unary(kernels::Unary<T>{kernels::UnaryOp::exponential, sum.data(), sum.data(), line<2>(count)});
      cuda::compare(kernels::Compare<T>{kernels::CompareOp::less, flags, x.data(), row.data(),
                                        space<3>(rows, cols, {2, 2, 1})});
      cuda::where(kernels::Where<T>{chosen.data(), flags, sum.data(), row.data(),
                                    space<4>(rows, cols, {2, 2, 2, 1})});
      return bytes(turned, wide, filled, sum, less, chosen);
    });
  }
}

TYPED_TEST(Schedules, ActivationAndDropout) {
  using T = TypeParam;
  for (const int64_t count : {256, 83})
    check_schedules("activation and dropout", [&] {
      const size_t n = static_cast<size_t>(count);
      DeviceBuffer<T> x(numbers<T>(count, 1)), gy(numbers<T>(count, 2)), y(n), gx(numbers<T>(count, 3)), d(n);
      cuda::activation_forward(kernels::ActivationForward<T>{Activation::gelu, x.data(), y.data(), count});
      cuda::activation_backward(
          kernels::ActivationBackward<T>{Activation::gelu_tanh, x.data(), gy.data(), gx.data(), count, true});
      cuda::dropout_forward(kernels::DropoutForward<T>{x.data(), y.data(), d.data(), count, some_dropout()});
      return bytes(y, gx, d);
    });
}

TYPED_TEST(Schedules, Reductions) {
  using T = TypeParam;
  struct Shape {
    int64_t kept, kept_stride, reduced, reduced_stride;
  };
  for (const Shape& s :
       {Shape{3, 72, 72, 1}, Shape{5, 33, 33, 1}, Shape{40, 1, 21, 40}, Shape{1, 1, 9000, 1}})
    check_schedules("reductions", [&] {
      const size_t kept = static_cast<size_t>(s.kept);
      DeviceBuffer<T> x(numbers<T>(s.kept * s.reduced, 1));
      DeviceBuffer<float> sum(kept), most(kept), norm(kept);
      DeviceBuffer<int64_t> place(kept);
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
    DeviceBuffer<T> x(numbers<T>(6 * 45, 1)), y(6 * 45);
    Strided<2> lines = line<2>(6, 45);
    cuda::cumulative_sum(kernels::CumulativeSum<T>{y.data(), x.data(), lines, 45, 1, 1, true, false});
    return bytes(y);
  });
}

TYPED_TEST(Schedules, Indexing) {
  using T = TypeParam;
  using A = kernels::scattered_t<T>;
  check_schedules("sort", [&] {
    DeviceBuffer<T> x(numbers<T>(2 * 300, 1)), values(2 * 300);
    DeviceBuffer<int64_t> indices(2 * 300);
    cuda::sort(
        kernels::Sort<T>{values.data(), indices.data(), x.data(), line<3>(2, 300), 300, 300, 1, 1, 1, true});
    return bytes(values, indices);
  });
  for (const int64_t width : {8, 7})
    check_schedules("rows by index", [&] {
      const int64_t count = 400, rows = 300;   // two digits
      const std::vector<int64_t> few(150, 4);  // one target over several stretches
      std::vector<int64_t> places = ids(count, rows, 2);
      std::copy(few.begin(), few.end(), places.begin() + 50);
      DeviceBuffer<T> table(numbers<T>(rows * width, 1)), y(static_cast<size_t>(count * width));
      DeviceBuffer<A> gx(numbers<A>(rows * width, 3));
      DeviceBuffer<int64_t> index(places);
      cuda::index_select(kernels::IndexSelect<T>{y.data(), table.data(), index.data(), count, width, rows});
      cuda::index_select_backward(
          kernels::IndexSelectBackward<T>{gx.data(), y.data(), index.data(), count, width, rows});
      return bytes(y, gx);
    });
}

TYPED_TEST(Schedules, Softmax) {
  using T = TypeParam;
  for (const int64_t cols : {33, 64, 1032, 8201}) {
    const int64_t rows = cols > 8000 ? 1 : 5, count = rows * cols;
    check_schedules("softmax and cross-entropy", [&] {
      const size_t n = static_cast<size_t>(count);
      DeviceBuffer<T> x(numbers<T>(count, 1)), y(n), gy(numbers<T>(count, 2)), gx(n), glogits(n);
      DeviceBuffer<float> loss(1);
      DeviceBuffer<int64_t> counted(1), targets(ids(rows, cols, 3));
      cuda::softmax_forward(kernels::SoftmaxForward<T>{x.data(), y.data(), rows, cols, false});
      cuda::softmax_backward(
          kernels::SoftmaxBackward<T>{y.data(), gy.data(), gx.data(), rows, cols, false, false});
      cuda::cross_entropy_forward(kernels::CrossEntropyForward<T>{x.data(), targets.data(), kNoToken, 0.1,
                                                                  true, loss.data(), counted.data(),
                                                                  glogits.data(), rows, cols});
      return bytes(y, gx, loss, counted, glogits);
    });
  }
}

TYPED_TEST(Schedules, ResidualLayerNorm) {
  using T = TypeParam;
  for (const int64_t cols : {40, 33, 1032, 8201}) {
    const int64_t rows = cols > 8000 ? 2 : 6, count = rows * cols;
    check_schedules("residual_layer_norm", [&] {
      const size_t n = static_cast<size_t>(count), width = static_cast<size_t>(cols);
      DeviceBuffer<T> residual(numbers<T>(count, 1)), x(numbers<T>(count, 2)), weight(numbers<T>(cols, 3)),
          sum(n), y(n), gy(numbers<T>(count, 4)), gsum(numbers<T>(count, 5)), gresidual(n), gx(n);
      DeviceBuffer<float> mean(static_cast<size_t>(rows)), rstd(static_cast<size_t>(rows)), gweight(width),
          gbias(width);
      cuda::residual_layer_norm_forward(kernels::ResidualLayerNormForward<T>{
          residual.data(), x.data(), weight.data(), nullptr, some_dropout(), sum.data(), y.data(),
          mean.data(), rstd.data(), rows, cols, 1e-5});
      cuda::residual_layer_norm_backward(kernels::ResidualLayerNormBackward<T>{
          gy.data(), gsum.data(), sum.data(), weight.data(), mean.data(), rstd.data(), some_dropout(),
          gresidual.data(), gx.data(), gweight.data(), gbias.data(), false, false, false, false, rows, cols});
      return bytes(sum, y, mean, rstd, gresidual, gx, gweight, gbias);
    });
  }
}

TYPED_TEST(Schedules, Embedding) {
  using T = TypeParam;
  for (const int64_t cols : {16, 5})
    check_schedules("embedding", [&] {
      const int64_t rows = 150, vocabulary = 20, positions = 40, count = rows * cols;
      std::vector<int64_t> places(static_cast<size_t>(rows));
      for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i) % positions;
      DeviceBuffer<T> table(numbers<T>(vocabulary * cols, 1)), position(numbers<T>(positions * cols, 2)),
          y(static_cast<size_t>(count));
      DeviceBuffer<float> gtable(static_cast<size_t>(vocabulary * cols)),
          gposition(numbers<float>(positions * cols, 4));
      DeviceBuffer<int64_t> tokens(ids(rows, vocabulary, 3)), at(places);
      cuda::embedding_forward(kernels::EmbeddingForward<T>{tokens.data(), table.data(), position.data(),
                                                           at.data(), some_dropout(), 2.0, y.data(), rows,
                                                           cols, vocabulary, positions});
      cuda::embedding_backward(kernels::EmbeddingBackward<T>{
          y.data(), tokens.data(), at.data(), some_dropout(), 2.0, 0, gtable.data(), gposition.data(), false,
          true, rows, cols, vocabulary, positions});
      return bytes(y, gtable, gposition);
    });
}

TYPED_TEST(Schedules, Linear) {
  using T = TypeParam;
  for (const int64_t out : {40, 33})
    check_schedules("linear", [&] {
      const int64_t rows = 37, in = 6, count = rows * out;
      const size_t n = static_cast<size_t>(count);
      DeviceBuffer<T> x(numbers<T>(rows * in, 1)), weight(numbers<T>(out * in, 2)), bias(numbers<T>(out, 3)),
          y(n), pre(n), gy(numbers<T>(count, 4)), gpre(n);
      DeviceBuffer<float> gbias(static_cast<size_t>(out));
      const bool relu = out == 40;
      const Activation activation = relu ? Activation::relu : Activation::gelu;
      cuda::linear_forward(kernels::LinearForward<T>{x.data(), weight.data(), bias.data(), activation,
                                                     some_dropout(), y.data(), pre.data(), rows, in, out});
      cuda::linear_backward(kernels::LinearBackward<T>{gy.data(), relu ? y.data() : pre.data(), activation,
                                                       some_dropout(), gpre.data(), gbias.data(), false, rows,
                                                       out});
      return bytes(y, pre, gpre, gbias);
    });
}

TYPED_TEST(Schedules, RandomFills) {
  using T = TypeParam;
  const uint64_t base = 1000;
  check_schedules("random", [&] {
    DeviceBuffer<uint64_t> device_base(std::vector<uint64_t>{base});
    const PhiloxState rng{5, device_base.data(), 9};
    DeviceBuffer<T> uniform(1027), normal(1027);
    DeviceBuffer<int64_t> integers(1027);
    cuda::fill_uniform(kernels::FillUniform<T>{uniform.data(), 1027, -3, 5, rng});
    cuda::fill_normal(kernels::FillNormal<T>{normal.data(), 1027, 1, 2, rng});
    cuda::fill_integers(kernels::FillIntegers{integers.data(), 1027, -7, int64_t{1} << 62, rng});
    cuda::fill_integers(kernels::FillIntegers{integers.data(), 0, 0, 1, rng});  // launches nothing
    return bytes(uniform, normal, integers);
  });
}

TYPED_TEST(Schedules, OptimizerSteps) {
  using T = TypeParam;
  for (const int64_t count : {1000, 333})
    check_schedules("optimizer", [&] {
      DeviceBuffer<T> value(numbers<T>(count, 1));
      DeviceBuffer<float> master(numbers<float>(count, 1)), gradient(numbers<float>(count, 2)),
          m(numbers<float>(count, 3)), v(std::vector<float>(static_cast<size_t>(count), 0.5f)),
          buffer(static_cast<size_t>(count));
      DeviceBuffer<double> norm(1), rate(1);
      DeviceBuffer<int64_t> step(std::vector<int64_t>{2}), first(std::vector<int64_t>{1});
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
                                  1.0,
                                  false};
      cuda::adam_step(kernels::AdamStep<T>{slice, m.data(), v.data(), 0.9, 0.98, 1e-9, true, step.data()});
      slice.zero_gradient = true;
      cuda::sgd_step(kernels::SgdStep<T>{slice, buffer.data(), 0.9, 0.0, true, first.data()});
      return bytes(value, master, gradient, m, v, buffer, norm, rate, step);
    });
}

TYPED_TEST(Schedules, Attention) {
  using T = TypeParam;
  struct Shape {
    int64_t width;
    int32_t length;
  };
  for (const Shape& s : {Shape{5, 40}, Shape{16, 40}, Shape{16, 130}})
    check_schedules("attention", [&] {
      constexpr int64_t kHeads = 2, kLimit = 3;
      const int64_t rows = s.length + 10, width = s.width, count = rows * kHeads * width;
      const bool table = width == 5;  // its gradient is the generic kernels'
      const size_t n = static_cast<size_t>(count);
      DeviceBuffer<T> q(numbers<T>(count, 1)), k(numbers<T>(count, 2)), v(numbers<T>(count, 3)), out(n),
          gout(numbers<T>(count, 4)), gq(n), gk(n), gv(n), relative(numbers<T>(kHeads * (2 * kLimit + 1), 5));
      DeviceBuffer<float> lse(static_cast<size_t>(kHeads * rows)),
          grelative(numbers<float>(kHeads * (2 * kLimit + 1), 6));
      DeviceBuffer<int64_t> first(std::vector<int64_t>{0, s.length});  // the last row is in no segment
      DeviceBuffer<int32_t> length(std::vector<int32_t>{s.length, 9});
      const SegmentsView segments{2,        first.data(), first.data(), length.data(), length.data(),
                                  s.length, s.length,     rows - 1,     rows - 1};
      const Visibility causal{.causal = Causal::top_left};
      kernels::AttentionBias<T> bias{};
      bias.relative = table ? relative.data() : nullptr;
      bias.relative_limit = kLimit;
      const auto heads = [=](auto* data) {
        return kernels::HeadsView<std::remove_pointer_t<decltype(data)>>{data, kHeads * width, width};
      };
      const auto read = [&](const DeviceBuffer<T>& x) { return heads(static_cast<const T*>(x.data())); };
      cuda::attention_forward(kernels::AttentionForward<T>{read(q), read(k), read(v), heads(out.data()),
                                                           lse.data(), segments, rows, rows, kHeads, kHeads,
                                                           width, 0.4, causal, bias, some_dropout()});
      cuda::attention_backward(kernels::AttentionBackward<T>{.q = read(q),
                                                             .k = read(k),
                                                             .v = read(v),
                                                             .out = read(out),
                                                             .gout = read(gout),
                                                             .lse = lse.data(),
                                                             .gq = heads(gq.data()),
                                                             .gk = heads(gk.data()),
                                                             .gv = heads(gv.data()),
                                                             .accumulate_q = false,
                                                             .accumulate_k = false,
                                                             .accumulate_v = false,
                                                             .gbias = nullptr,
                                                             .grelative = table ? grelative.data() : nullptr,
                                                             .segments = segments,
                                                             .query_rows = rows,
                                                             .key_rows = rows,
                                                             .heads = kHeads,
                                                             .key_heads = kHeads,
                                                             .width = width,
                                                             .scale = 0.4,
                                                             .visibility = causal,
                                                             .bias = bias,
                                                             .dropout = some_dropout()});
      return bytes(out, lse, gq, gk, gv, grelative);
    });
}

}  // namespace
}  // namespace heed
