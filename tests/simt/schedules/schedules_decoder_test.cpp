// The CUDA kernel of rotary positions under every schedule of the emulator: as schedules_rows_test.cpp.
#include <heed/kernels/rotary.h>

#include "schedules.h"

namespace heed::testing {
namespace {

template <class T>
class DecoderSchedules : public ::testing::Test {};
TYPED_TEST_SUITE(DecoderSchedules, KernelTypes);

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
