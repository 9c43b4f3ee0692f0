// CUDA kernels of recurrent and convolutional layers under every schedule of the emulator: the bits must not
// depend on it, and the builds with checks look for races and wrong addresses. What the results should be is
// tested with the operations, in tests/core/ops.
#include <heed/kernels/batch_norm.h>
#include <heed/kernels/convolution.h>
#include <heed/kernels/pool.h>
#include <heed/kernels/recurrent.h>

#include "schedules.h"

namespace heed::testing {
namespace {

template <class T>
class LayerSchedules : public ::testing::Test {};
TYPED_TEST_SUITE(LayerSchedules, KernelTypes);

TYPED_TEST(LayerSchedules, Recurrent) {
  using T = TypeParam;
  const std::vector<int64_t> active{3, 3, 1};  // lengths 3, 2 and 2
  const int64_t count = 3, total = 7;
  for (const CellKind kind : {CellKind::lstm, CellKind::gru})
    for (const int64_t width : {1, 5, 40}) {
      const int64_t all = gate_count(kind) * width, state = count * width;
      const bool lstm = kind == CellKind::lstm, reverse = width == 5;
      const auto rows_of = [&](const Buffer<int64_t>& rows) {
        return kernels::RecurrentRows{rows.data(), rows.data() + count, active.data(), count, 3, reverse};
      };
      const std::vector<int64_t> rows{2, 0, 5, 3, 2, 2};
      check_schedules("recurrent forward", [&] {
        const Buffer<int64_t> places(rows);
        const Buffer<T> gates(numbers<T>(total * all, 1)), weight(numbers<T>(all * width, 2)),
            bias(numbers<T>(all, 3)), h(numbers<T>(state, 4)), c(numbers<T>(state, 5)), y(total * width),
            cells(numbers<T>(total * width, 6)), kept(total * 4 * width);
        cuda::recurrent_forward(kernels::RecurrentForward<T>{
            kind, rows_of(places), gates.data(), weight.data(), width == 1 ? nullptr : bias.data(), h.data(),
            lstm ? c.data() : nullptr, y.data(), lstm ? cells.data() : nullptr, kept.data(), total, width});
        return bytes(h, c, y, cells, kept);
      });
      check_schedules("recurrent backward", [&] {
        const Buffer<int64_t> places(rows);
        const Buffer<T> gy(numbers<T>(total * width, 1)), y(numbers<T>(total * width, 2)),
            cells(numbers<T>(total * width, 3)), kept(numbers<T>(total * 4 * width, 4)),
            h0(numbers<T>(state, 5)), c0(numbers<T>(state, 6)), weight(numbers<T>(all * width, 7)),
            ggates(total * all), gproduct(numbers<T>(total * all, 8)), previous(total * width);
        const Buffer<float> gh(numbers<float>(state, 9)), gc(numbers<float>(state, 10));
        cuda::recurrent_backward(kernels::RecurrentBackward<T>{
            kind, rows_of(places), width == 1 ? nullptr : gy.data(), y.data(), lstm ? cells.data() : nullptr,
            kept.data(), h0.data(), lstm ? c0.data() : nullptr, weight.data(), gh.data(),
            lstm ? gc.data() : nullptr, ggates.data(), lstm ? nullptr : gproduct.data(), previous.data(),
            total, width});
        return bytes(gh, gc, ggates, gproduct, previous);
      });
    }
}

TYPED_TEST(LayerSchedules, Convolution) {
  using T = TypeParam;
  const std::vector<kernels::ConvolutionSizes> cases{
      {2, 3, 6, 5, 4, 1, {{3, 2}, {1, 1}, {1, 0}, {1, 2}}},
      {1, 4, 7, 8, 4, 4, {{3, 3}, {2, 2}, {1, 1}, {1, 1}}},  // more groups than images
      {3, 2, 4, 4, 2, 2, {{1, 1}, {3, 3}, {0, 0}, {1, 1}}}};
  for (const kernels::ConvolutionSizes& s : cases) {
    const int64_t x_count = s.batch * s.channels * s.height * s.width,
                  y_count = s.batch * s.outputs * s.pixels(), w_count = s.outputs * s.depth();
    check_schedules("convolution forward", [&] {
      const Buffer<T> x(numbers<T>(x_count, 1)), weight(numbers<T>(w_count, 2)),
          bias(numbers<T>(s.outputs, 3)), y(y_count);
      cuda::convolution_forward(kernels::ConvolutionForward<T>{
          s, x.data(), weight.data(), s.batch == 2 ? bias.data() : nullptr, y.data()});
      return bytes(y);
    });
    for (const bool accumulate : {false, true})
      check_schedules("convolution backward", [&] {
        const Buffer<T> gy(numbers<T>(y_count, 1)), x(numbers<T>(x_count, 2)), weight(numbers<T>(w_count, 3)),
            gx(numbers<T>(x_count, 4));
        const Buffer<float> gweight(numbers<float>(w_count, 5));
        cuda::convolution_backward(kernels::ConvolutionBackward<T>{
            s, gy.data(), x.data(), weight.data(), gx.data(), gweight.data(), accumulate, accumulate});
        return bytes(gx, gweight);
      });
  }
}

TYPED_TEST(LayerSchedules, Pool) {
  using T = TypeParam;
  for (const PoolKind kind : {PoolKind::max, PoolKind::mean})
    for (const kernels::Window& window :
         {kernels::Window{{2, 2}, {2, 2}, {0, 0}, {1, 1}}, kernels::Window{{3, 2}, {1, 3}, {1, 1}, {2, 1}}}) {
      const kernels::PoolSizes s{kind, 3, 7, 9, window};
      const bool largest = kind == PoolKind::max;
      const int64_t pixels = s.planes * s.pixels(), count = s.planes * s.height * s.width;
      check_schedules("pool", [&] {
        const Buffer<T> x(numbers<T>(count, 1)), y(pixels), gy(numbers<T>(pixels, 2)),
            gx(numbers<T>(count, 3));
        const Buffer<int32_t> index(std::vector<int32_t>(static_cast<size_t>(pixels), 0));
        cuda::pool_forward(kernels::PoolForward<T>{s, x.data(), y.data(), largest ? index.data() : nullptr});
        cuda::pool_backward(kernels::PoolBackward<T>{s, gy.data(), largest ? index.data() : nullptr,
                                                     gx.data(), window.stride[0] == 1});
        return bytes(y, index, gx);
      });
    }
}

TYPED_TEST(LayerSchedules, BatchNorm) {
  using T = TypeParam;
  for (const int64_t pixels : {1, 33, 300}) {
    const int64_t batch = 3, channels = 2, count = batch * channels * pixels;
    const bool affine = pixels != 1, added = pixels == 33;
    check_schedules("batch_norm forward", [&] {
      const Buffer<T> x(numbers<T>(count, 1)), weight(numbers<T>(channels, 2)), bias(numbers<T>(channels, 3)),
          y(count);
      const Buffer<float> mean(channels), variance(channels);
      cuda::batch_norm_forward(kernels::BatchNormForward<T>{
          x.data(), affine ? weight.data() : nullptr, affine ? bias.data() : nullptr, y.data(), mean.data(),
          variance.data(), batch, channels, pixels, 1e-5});
      return bytes(y, mean, variance);
    });
    check_schedules("batch_norm backward", [&] {
      const Buffer<T> gy(numbers<T>(count, 1)), x(numbers<T>(count, 2)), weight(numbers<T>(channels, 3)),
          gx(numbers<T>(count, 4));
      const Buffer<float> mean(numbers<float>(channels, 5)), variance(std::vector<float>{0.5f, 2}),
          gweight(numbers<float>(channels, 6)), gbias(numbers<float>(channels, 7));
      cuda::batch_norm_backward(kernels::BatchNormBackward<T>{
          gy.data(), x.data(), affine ? weight.data() : nullptr, mean.data(), variance.data(), gx.data(),
          gweight.data(), affine ? gbias.data() : nullptr, added, added, added, batch, channels, pixels,
          1e-5});
      return bytes(gx, gweight, gbias);
    });
  }
}

}  // namespace
}  // namespace heed::testing
