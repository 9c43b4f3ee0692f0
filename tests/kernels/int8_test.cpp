// Products of 8-bit integers against f64, with each instruction set, and with and without dot products of
// bytes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/cpu/simd/byte_dot.h>
#include <heed/kernels/int8.h>

namespace heed {
namespace {

std::vector<float> random(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = normal(generator);
  return x;
}

// Elements of 8 bits with a scale for each `block` of a row, in f64.
std::vector<double> rounded(const std::vector<float>& x, int64_t cols, int64_t block) {
  std::vector<double> to(x.size());
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(cols))
    for (int64_t first = 0; first < cols; first += block) {
      const size_t begin = row + static_cast<size_t>(first),
                   end = row + static_cast<size_t>(std::min(first + block, cols));
      double most = 0;
      for (size_t i = begin; i < end; ++i) most = std::max<double>(most, std::abs(x[i]));
      for (size_t i = begin; i < end; ++i)
        to[i] = most == 0 ? 0 : std::nearbyint(x[i] * 127 / most) * most / 127;
    }
  return to;
}

struct Problem {
  int64_t rows, in, out, all_out, first;
  std::vector<float> x = random(rows * in, 5), w = random(all_out * in, 6), bias = random(out, 7);
  std::vector<std::byte> packed = {};

  std::vector<float> product() {
    kernels::Int8Matrix matrix{nullptr, all_out, in};
    packed.resize(static_cast<size_t>(matrix.bytes()));
    cpu::int8_pack({.values = w.data(), .matrix = matrix, .data = packed.data()});
    matrix.data = packed.data();
    std::vector<float> y(static_cast<size_t>(rows * out), NAN);
    cpu::int8_linear({.x = x.data(),
                      .matrix = matrix,
                      .first = first,
                      .out = out,
                      .bias = bias.data(),
                      .y = y.data(),
                      .rows = rows});
    return y;
  }
};

// Sums of integers are exact, and a sum of blocks has an ulp or two of its largest part.
void check(Problem p) {
  const std::vector<float> y = p.product();
  const std::vector<double> a = rounded(p.x, p.in, kernels::kInt8Block), b = rounded(p.w, p.in, p.in);
  for (int64_t i = 0; i < p.rows; ++i)
    for (int64_t j = 0; j < p.out; ++j) {
      double sum = p.bias[static_cast<size_t>(j)], magnitude = std::abs(sum);
      for (int64_t k = 0; k < p.in; ++k) {
        const double term =
            a[static_cast<size_t>(i * p.in + k)] * b[static_cast<size_t>((p.first + j) * p.in + k)];
        sum += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(y[static_cast<size_t>(i * p.out + j)], sum, 1e-6 * magnitude)
          << p.rows << ' ' << p.in << ' ' << p.out << ' ' << i << ' ' << j;
    }
  cpu::allow_byte_dot(false);
  const std::vector<float> without = p.product();
  cpu::allow_byte_dot(true);
  ASSERT_EQ(y, without);
}

TEST(Int8Linear, IsTheProductOfTheRoundedOperands) {
  for (const int64_t in : {1, 3, 4, 63, 64, 65, 130, 400})
    for (const int64_t out : {1, 15, 16, 17, 70, 130})
      for (const int64_t rows : {1, 2, 3, 5, 9}) check({rows, in, out, out, 0});
}

TEST(Int8Linear, TakesSomeRowsOfTheMatrix) {
  for (const int64_t first : {1, 16, 31, 100}) check({3, 70, 90, 200, first});
}

// The largest sums that integers have: all products are 127².
TEST(Int8Linear, SumsDoNotOverflow) {
  constexpr int64_t kCols = kernels::Int8Matrix::kMaxCols;
  Problem p{1, kCols, 1, 1, 0};
  std::fill(p.x.begin(), p.x.end(), 2.0f);
  std::fill(p.w.begin(), p.w.end(), 1.0f);
  p.bias = {0};
  EXPECT_NEAR(p.product()[0], 2.0 * kCols, 1);
}

}  // namespace
}  // namespace heed
