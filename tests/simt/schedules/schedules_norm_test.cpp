// The CUDA kernels of layer norm and RMS norm under every schedule of the emulator: as
// schedules_rows_test.cpp.
#include <heed/kernels/norm.h>

#include "schedules.h"

namespace heed::testing {
namespace {

template <class T>
class NormSchedules : public ::testing::Test {};
TYPED_TEST_SUITE(NormSchedules, KernelTypes);

// What is given to a norm beside x, what is wanted of it, and whether that is added.
struct NormOptions {
  bool weight, bias, dropout, gsum, gresidual, gx, sums, accumulate, post;
};

constexpr NormOptions kNormOptions[] = {{true, false, true, true, true, true, true, false, false},
                                        {false, true, false, false, true, true, true, true, false},
                                        {true, true, true, false, false, true, false, true, false},
                                        {false, false, true, true, true, false, true, false, false},
                                        {true, true, true, false, true, true, true, false, true},
                                        {false, true, true, false, true, true, true, false, true}};

template <class T>
void check_forward(NormKind kind, int64_t rows, int64_t cols, const NormOptions& o) {
  const int64_t count = rows * cols;
  const bool layer = kind == NormKind::layer;
  check_schedules(layer ? "residual_layer_norm forward" : "residual_rms_norm forward", [&] {
    const Buffer<T> residual(numbers<T>(count, 1)), x(numbers<T>(count, 2)), weight(numbers<T>(cols, 3)),
        bias(numbers<T>(cols, 4)), sum(numbers<T>(count, 6)), y(count);
    const Buffer<float> mean(numbers<float>(rows, 5)), rstd(rows);
    const Buffer<uint8_t> invertible(std::vector<uint8_t>{0});
    cuda::norm_forward(
        kernels::NormForward<T>{.kind = kind,
                                .residual = residual.data(),
                                .x = x.data(),
                                .weight = o.weight ? weight.data() : nullptr,
                                .bias = layer && o.bias ? bias.data() : nullptr,
                                .dropout = o.dropout ? some_dropout() : Dropout{},
                                .sum = sum.data(),
                                .y = y.data(),
                                .mean = layer ? mean.data() : nullptr,
                                .rstd = rstd.data(),
                                .keep_mask = nullptr,
                                .again = false,
                                .rows = rows,
                                .cols = cols,
                                .eps = 1e-5,
                                .post = o.post,
                                .invertible = o.post ? reinterpret_cast<bool*>(invertible.data()) : nullptr});
    return bytes(sum, y, mean, rstd, invertible);
  });
}

template <class T>
void check_backward(NormKind kind, int64_t rows, int64_t cols, const NormOptions& o) {
  const int64_t count = rows * cols;
  const bool layer = kind == NormKind::layer;
  check_schedules(layer ? "residual_layer_norm backward" : "residual_rms_norm backward", [&] {
    const Buffer<T> gy(numbers<T>(count, 1)), gsum(numbers<T>(count, 2)), sum(numbers<T>(count, 3)),
        weight(numbers<T>(cols, 4)), gresidual(numbers<T>(count, 7)), gx(numbers<T>(count, 8));
    const Buffer<uint8_t> invertible(std::vector<uint8_t>{1});
    const Buffer<float> mean(numbers<float>(rows, 5)), rstd(numbers<float>(rows, 6)),
        gweight(numbers<float>(cols, 9)), gbias(numbers<float>(cols, 10));
    cuda::norm_backward(kernels::NormBackward<T>{
        .kind = kind,
        .residual = true,
        .gy = gy.data(),
        .gsum = o.gsum ? gsum.data() : nullptr,
        .sum = sum.data(),
        .weight = o.weight ? weight.data() : nullptr,
        .mean = layer ? mean.data() : nullptr,
        .rstd = rstd.data(),
        .dropout = o.dropout ? some_dropout() : Dropout{},
        .keep_mask = nullptr,
        .gresidual = o.gresidual ? gresidual.data() : nullptr,
        .gx = o.gx ? gx.data() : nullptr,
        .gweight = o.sums ? gweight.data() : nullptr,
        .gbias = layer && o.sums && o.bias ? gbias.data() : nullptr,
        .accumulate_residual = o.accumulate,
        .accumulate_x = o.accumulate,
        .accumulate_weight = o.accumulate,
        .accumulate_bias = o.accumulate,
        .rows = rows,
        .cols = cols,
        .y = o.post ? sum.data() : nullptr,
        .bias = layer && o.bias && o.post ? weight.data() : nullptr,
        .invertible = o.post ? reinterpret_cast<bool*>(invertible.data()) : nullptr});
    return bytes(gresidual, gx, gweight, gbias);
  });
}

TYPED_TEST(NormSchedules, WithAResidual) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms})
    for (const int64_t cols : {1, 33, 40, 1032, 8201})
      for (const NormOptions& o : kNormOptions) {
        if (cols > 8000 && &o != kNormOptions) continue;
        const int64_t rows = cols > 8000 ? 1 : 5;
        check_forward<TypeParam>(kind, rows, cols, o);
        check_backward<TypeParam>(kind, rows, cols, o);
      }
}

}  // namespace
}  // namespace heed::testing
