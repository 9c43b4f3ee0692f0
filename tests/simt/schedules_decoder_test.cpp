// The CUDA kernels of decoder-only models, RMS norm and rotary positions, under every schedule of the
// emulator: as schedules_rows_test.cpp.
#include <heed/kernels/rms_norm.h>
#include <heed/kernels/rotary.h>

#include "schedules.h"

namespace heed::testing {
namespace {

template <class T>
class DecoderSchedules : public ::testing::Test {};
TYPED_TEST_SUITE(DecoderSchedules, KernelTypes);

// What is given to rms_norm beside x, what is wanted of it, and whether that is added.
struct NormOptions {
  bool weight, dropout, gsum, gresidual, gx, sums, accumulate;
};

constexpr NormOptions kNormOptions[] = {{true, true, true, true, true, true, false},
                                        {false, false, false, true, true, true, true},
                                        {true, true, false, false, true, false, true},
                                        {false, true, true, true, false, true, false}};

TYPED_TEST(DecoderSchedules, RMSNorm) {
  using T = TypeParam;
  for (const int64_t cols : {1, 33, 40, 1032, 8201})
    for (const NormOptions& o : kNormOptions) {
      if (cols > 8000 && &o != kNormOptions) continue;
      const int64_t rows = cols > 8000 ? 1 : 5, count = rows * cols;
      const Dropout dropout = o.dropout ? some_dropout() : Dropout{};
      check_schedules("rms_norm forward", [&] {
        const Buffer<T> residual(numbers<T>(count, 1)), x(numbers<T>(count, 2)), weight(numbers<T>(cols, 3)),
            sum(count), y(count);
        const Buffer<float> rstd(rows);
        cuda::rms_norm_forward(
            kernels::RMSNormForward<T>{residual.data(), x.data(), o.weight ? weight.data() : nullptr, dropout,
                                       sum.data(), y.data(), rstd.data(), rows, cols, 1e-5});
        return bytes(sum, y, rstd);
      });
      check_schedules("rms_norm backward", [&] {
        const Buffer<T> gy(numbers<T>(count, 1)), gsum(numbers<T>(count, 2)), sum(numbers<T>(count, 3)),
            weight(numbers<T>(cols, 4)), gresidual(numbers<T>(count, 7)), gx(numbers<T>(count, 8));
        const Buffer<float> rstd(numbers<float>(rows, 6)), gweight(numbers<float>(cols, 9));
        cuda::rms_norm_backward(kernels::RMSNormBackward<T>{
            gy.data(), o.gsum ? gsum.data() : nullptr, sum.data(), o.weight ? weight.data() : nullptr,
            rstd.data(), dropout, o.gresidual ? gresidual.data() : nullptr, o.gx ? gx.data() : nullptr,
            o.sums ? gweight.data() : nullptr, o.accumulate, o.accumulate, o.accumulate, rows, cols});
        return bytes(gresidual, gx, gweight);
      });
    }
}

TYPED_TEST(DecoderSchedules, Rotary) {
  using T = TypeParam;
  for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved})
    for (const int64_t width : {6, 34, 32})  // single elements, and vectors
      for (const bool gradient : {false, true})
        check_schedules("rotary", [&] {
          const int64_t rows = 5, heads = 4, rotated = width == 32 ? 16 : 4, count = rows * heads * width;
          const Buffer<T> x(numbers<T>(count, 1)), y(numbers<T>(count, 2));
          const Buffer<int64_t> positions(std::vector<int64_t>{0, 3, 1, 2, 2});
          const Buffer<float> table(numbers<float>(4 * 2 * rotated, 3));
          cuda::rotary(kernels::Rotary<T>{x.data(), positions.data(), table.data(), y.data(), rows, heads,
                                          /*rotated_heads=*/3, width, rotated, /*entries=*/4, pairing,
                                          /*inverse=*/gradient, /*accumulate=*/gradient});
          return bytes(y);
        });
}

}  // namespace
}  // namespace heed::testing
