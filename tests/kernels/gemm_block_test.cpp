#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>

#include "plain_bound.h"

namespace heed {
namespace {

using testing::random_values;

/// The tile of C = op(A) B of an operand B that lies in rows of `row` elements, with buffers for copies or
/// none.
template <class T>
std::vector<T> multiply(const std::vector<T>& a, bool transposed, const std::vector<T>& b, int64_t rows,
                        int64_t cols, int64_t k, int64_t row, bool copies) {
  const cpu::GemmFunctions<T>& functions = cpu::gemm_functions<T>();
  std::vector<T> c(static_cast<size_t>(rows * cols)), a_buffer, b_buffer;
  if (copies) {
    a_buffer.resize(static_cast<size_t>(functions.geometry.a_buffer(rows, k)));
    b_buffer.resize(static_cast<size_t>(functions.geometry.b_buffer(cols, k)));
  }
  functions.block({cpu::matrix_view(a.data(), transposed ? rows : k, transposed),
                   rows,
                   b.data(),
                   row,
                   c.data(),
                   cols,
                   rows,
                   cols,
                   k,
                   T(1),
                   {},
                   copies ? a_buffer.data() : nullptr,
                   copies ? b_buffer.data() : nullptr});
  return c;
}

// Whether operands are copied first depends on the processor's caches, which must not change a result.
template <class T>
void expect_same_bits() {
  const int64_t panel = cpu::gemm_functions<T>().geometry.nr, row = 6 * panel;
  for (const bool transposed : {false, true}) {
    for (const int64_t rows : {1, 5, 6, 25, 96}) {
      for (const int64_t cols : {panel, 4 * panel, 6 * panel}) {
        for (const int64_t k : {1, 31, 128, 1025}) {  // 1025 is summed in pieces
          const auto a = random_values<T>(rows * k, 1), b = random_values<T>(k * row, 2);
          const auto there = multiply(a, transposed, b, rows, cols, k, row, false);
          const auto copied = multiply(a, transposed, b, rows, cols, k, row, true);
          ASSERT_EQ(0, std::memcmp(there.data(), copied.data(), there.size() * sizeof(T)))
              << concat(rows, " x ", cols, " x ", k, transposed ? ", transposed" : "");
        }
      }
    }
  }
}

TEST(GemmTileTest, CopiedOperandsGiveTheSameBits) {
  expect_same_bits<float>();
  expect_same_bits<double>();
}

}  // namespace
}  // namespace heed
