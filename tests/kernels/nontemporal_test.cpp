// Results too large for the caches are written around them: with the same bits as those of a few rows at a
// time.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include <heed/kernels/activation.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/dropout.h>
#include <heed/kernels/elementwise.h>
#include <heed/kernels/gemm.h>
#include <heed/kernels/norm.h>
#include <heed/kernels/optimizer.h>
#include <heed/kernels/softmax.h>

#include "plain_bound.h"

namespace heed {
namespace {

using namespace heed::testing;

constexpr int64_t kCols = 1024, kPart = 64;

/// Memory whose first element begins a line, as tensors have it.
template <class T>
struct Matrix {
  explicit Matrix(int64_t rows) : memory(poisoned<T>(static_cast<size_t>(rows * kCols) + 64)) {
    const auto misplaced = reinterpret_cast<uintptr_t>(memory.data()) % 64;
    data = memory.data() + (64 - misplaced) % 64 / sizeof(T);
  }
  T* row(int64_t r) const { return data + r * kCols; }

  std::vector<T> memory;
  T* data;
};

template <class T>
bool same_rows(const T* a, const T* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(T)) == 0;
}

/// run(first row, rows, where the result begins): all at once gives what parts give.
template <class T, class Run>
void expect_parts_alike(int64_t all_rows, Matrix<T>& result, const Run& run) {
  run(0, all_rows, result.data);
  Matrix<T> part(kPart);
  for (int64_t r = 0; r < all_rows; r += kPart) {
    const int64_t rows = std::min(kPart, all_rows - r);
    run(r, rows, part.data);
    ASSERT_TRUE(same_rows(result.row(r), part.data, rows * kCols)) << "from row " << r;
  }
}

template <class T>
class NonTemporalTest : public ::testing::Test {
 protected:
  // More bytes in each matrix than caches are taken to hold.
  static constexpr int64_t kRows = (int64_t{36} << 20) / kCols / static_cast<int64_t>(sizeof(T));

  NonTemporalTest() : x(drawn<1>(6)), gy(drawn<2>(2)), result(kRows) {}

  /// Once for all tests, since drawing takes longer than most kernels.
  template <uint32_t kSeed>
  static const Matrix<T>& drawn(double size) {
    static const Matrix<T> all = [&] {
      const auto values = random_values<T>(kRows * kCols, kSeed, -size, size);
      Matrix<T> matrix(kRows);
      std::copy(values.begin(), values.end(), matrix.data);
      return matrix;
    }();
    return all;
  }

  template <class Run>
  void expect_same(const Run& run) {
    expect_parts_alike(kRows, result, run);
  }

  const Matrix<T>&x, &gy;
  Matrix<T> result;
};
TYPED_TEST_SUITE(NonTemporalTest, FloatingTypes);

TYPED_TEST(NonTemporalTest, Activation) {
  using T = TypeParam;
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    cpu::activation_forward<T>({Activation::gelu, this->x.row(r), to, rows * kCols});
  });
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    cpu::activation_backward<T>(
        {Activation::gelu_tanh, this->x.row(r), this->gy.row(r), to, rows * kCols, false});
  });
}

/// Operands that all lie as the result does, from row to row.
template <int N>
Strided<N> alike(int64_t rows) {
  Strided<N> index{.rank = 1, .sizes = {rows * kCols}, .strides = {}};
  for (int k = 0; k < N; ++k) index.strides[k][0] = 1;
  return index;
}

TYPED_TEST(NonTemporalTest, Elementwise) {
  using T = TypeParam;
  using kernels::BinaryOp;
  using kernels::UnaryOp;
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    cpu::unary<T>({UnaryOp::hyperbolic_tangent, to, this->x.row(r), alike<2>(rows)});
  });
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    cpu::clamp<T>({to, this->x.row(r), T(-2), T(3), alike<2>(rows)});
  });
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    cpu::binary<T>({BinaryOp::divide, to, this->x.row(r), this->gy.row(r), T(0), alike<3>(rows)});
  });
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    cpu::binary<T>({BinaryOp::subtract, to, nullptr, this->x.row(r), T(1), alike<3>(rows)});
  });
  std::vector<uint8_t> condition(static_cast<size_t>(this->kRows * kCols));
  for (size_t i = 0; i < condition.size(); ++i) condition[i] = i % 3 == 0;
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    const bool* const from = reinterpret_cast<const bool*>(condition.data()) + r * kCols;
    cpu::where<T>({to, from, this->x.row(r), this->gy.row(r), alike<4>(rows)});
  });
  const auto doubles = random_values<double>(this->kRows * kCols, 5);
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    cpu::copy<T, double>({to, doubles.data() + r * kCols, alike<2>(rows), false});
  });
}

// Rows that neither begin with a line nor consist of whole ones, next to elements that are no result.
TYPED_TEST(NonTemporalTest, ElementwiseBetweenLines) {
  using T = TypeParam;
  constexpr int64_t kFirst = 3, kWidth = 1005;
  const auto product = [&](int64_t r, int64_t rows, T* to) {
    Strided<3> index{.rank = 2, .sizes = {rows, kWidth}, .strides = {}};
    for (int k = 0; k < 3; ++k) index.strides[k][0] = k == 2 ? 0 : kCols, index.strides[k][1] = 1;
    cpu::binary<T>({kernels::BinaryOp::multiply, to + kFirst, this->x.row(r), this->gy.row(0), T(0), index});
  };
  std::fill_n(this->result.data, this->kRows * kCols, T(7));
  product(0, this->kRows, this->result.data);
  for (int64_t r = 0; r < this->kRows; r += kPart) {
    const int64_t rows = std::min(kPart, this->kRows - r);
    std::vector<T> part(static_cast<size_t>(rows * kCols), T(7));
    product(r, rows, part.data());
    ASSERT_TRUE(same_rows(part.data(), this->result.row(r), rows * kCols)) << "from row " << r;
  }
}

// In place nothing is streamed.
TYPED_TEST(NonTemporalTest, Dropout) {
  using T = TypeParam;
  const int64_t count = this->kRows * kCols;
  const Dropout dropout = make_dropout(0.3, {1, nullptr, 0});
  Matrix<T> in_place(this->kRows);
  const auto expect_same = [&] { ASSERT_TRUE(same_rows(this->result.data, in_place.data, count)); };
  std::copy_n(this->x.data, count, in_place.data);
  cpu::dropout_forward<T>({in_place.data, this->gy.data, in_place.data, count, dropout});
  cpu::dropout_forward<T>({this->x.data, this->gy.data, this->result.data, count, dropout});
  expect_same();
  std::copy_n(this->x.data, count, in_place.data);
  cpu::dropout_backward<T>({in_place.data, in_place.data, count, dropout, false});
  cpu::dropout_backward<T>({this->x.data, this->result.data, count, dropout, false});
  expect_same();
}

TYPED_TEST(NonTemporalTest, Softmax) {
  using T = TypeParam;
  for (const bool log : {false, true}) {
    this->expect_same([&](int64_t r, int64_t rows, T* to) {
      cpu::softmax_forward<T>({this->x.row(r), to, rows, kCols, log});
    });
    this->expect_same([&](int64_t r, int64_t rows, T* to) {
      cpu::softmax_backward<T>({this->x.row(r), this->gy.row(r), to, rows, kCols, log, false});
    });
  }
}

TYPED_TEST(NonTemporalTest, CrossEntropy) {
  using T = TypeParam;
  std::vector<int64_t> targets(this->kRows);
  for (int64_t r = 0; r < this->kRows; ++r) targets[r] = r % 5 == 0 ? -100 : r * 7 % kCols;
  this->expect_same([&](int64_t r, int64_t rows, T* to) {
    accumulator_t<T> loss;
    int64_t counted;
    cpu::cross_entropy_forward<T>(
        {this->x.row(r), targets.data() + r, -100, 0.1, false, &loss, &counted, to, rows, kCols});
  });
}

// The last pass over a row goes beside the sums of the next, eight vectors at a time: here some are left.
TYPED_TEST(NonTemporalTest, SoftmaxAndCrossEntropyOfRowsWithARest) {
  using T = TypeParam;
  constexpr int64_t kWide = kCols + 32;
  const int64_t rows = this->kRows * kCols / kWide;
  std::vector<int64_t> targets(rows);
  for (int64_t r = 0; r < rows; ++r) targets[r] = r % 5 == 0 ? -100 : kWide - 1 - r % 40;
  const auto expect_rows_alike = [&](const auto& run) {
    run(0, rows, this->result.data);
    Matrix<T> one(2);
    for (int64_t r = 0; r < rows; ++r) {
      const T* const row = this->result.data + r * kWide;
      run(r, 1, one.data);
      ASSERT_TRUE(same_rows(row, one.data, kWide)) << "row " << r;
    }
  };
  for (const bool log : {false, true}) {
    expect_rows_alike([&](int64_t r, int64_t count, T* to) {
      cpu::softmax_forward<T>({this->x.data + r * kWide, to, count, kWide, log});
    });
  }
  expect_rows_alike([&](int64_t r, int64_t count, T* to) {
    accumulator_t<T> loss;
    int64_t counted;
    cpu::cross_entropy_forward<T>(
        {this->x.data + r * kWide, targets.data() + r, -100, 0.1, false, &loss, &counted, to, count, kWide});
  });
}

// Each kind, with a residual and without.
TYPED_TEST(NonTemporalTest, Norm) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  std::vector<A> mean(this->kRows), rstd(this->kRows), gweight(kCols), gbias(kCols);
  const auto weight = random_values<T>(kCols, 3), bias = random_values<T>(kCols, 4);
  Matrix<T> other(this->kRows);
  for (const NormKind kind : {NormKind::layer, NormKind::rms})
    for (const bool residual : {false, true}) {
      const bool layer = kind == NormKind::layer;
      const auto forward = [&](int64_t r, int64_t rows, T* sum, T* y) {
        cpu::norm_forward(kernels::NormForward<T>{.kind = kind,
                                                  .residual = residual ? this->gy.row(r) : nullptr,
                                                  .x = this->x.row(r),
                                                  .weight = weight.data(),
                                                  .bias = layer ? bias.data() : nullptr,
                                                  .dropout = {},
                                                  .sum = residual ? sum : nullptr,
                                                  .y = y,
                                                  .mean = layer ? mean.data() + r : nullptr,
                                                  .rstd = rstd.data() + r,
                                                  .keep_mask = nullptr,
                                                  .again = false,
                                                  .rows = rows,
                                                  .cols = kCols,
                                                  .eps = 1e-5});
      };
      const auto backward = [&](int64_t r, int64_t rows, T* gresidual, T* gx) {
        cpu::norm_backward(kernels::NormBackward<T>{.kind = kind,
                                                    .residual = residual,
                                                    .gy = this->gy.row(r),
                                                    .gsum = nullptr,
                                                    .sum = this->x.row(r),
                                                    .weight = weight.data(),
                                                    .mean = layer ? mean.data() + r : nullptr,
                                                    .rstd = rstd.data() + r,
                                                    .dropout = {},
                                                    .keep_mask = nullptr,
                                                    .gresidual = residual ? gresidual : nullptr,
                                                    .gx = gx,
                                                    .gweight = gweight.data(),
                                                    .gbias = layer ? gbias.data() : nullptr,
                                                    .accumulate_residual = false,
                                                    .accumulate_x = false,
                                                    .accumulate_weight = false,
                                                    .accumulate_bias = false,
                                                    .rows = rows,
                                                    .cols = kCols});
      };
      this->expect_same([&](int64_t r, int64_t rows, T* to) { forward(r, rows, other.data, to); });
      this->expect_same([&](int64_t r, int64_t rows, T* to) { backward(r, rows, other.data, to); });
      if (!residual) continue;
      this->expect_same([&](int64_t r, int64_t rows, T* to) { forward(r, rows, to, other.data); });
      this->expect_same([&](int64_t r, int64_t rows, T* to) { backward(r, rows, to, other.data); });
    }
}

TYPED_TEST(NonTemporalTest, GradientOfAWeight) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  constexpr int64_t kTokens = 150, kRows = 630;  // no part is so small that another product is faster
  const auto a = random_values<T>(kTokens * kRows, 3), b = random_values<T>(kTokens * kCols, 4);
  const auto product = [&](int64_t r, int64_t rows, A* c) {
    cpu::gemm(kernels::Gemm<T, A>{.a = a.data() + r,
                                  .b = b.data(),
                                  .c = c,
                                  .m = rows,
                                  .n = kCols,
                                  .k = kTokens,
                                  .lda = kRows,
                                  .ldb = kCols,
                                  .ldc = kCols,
                                  .transpose_a = true});
  };
  Matrix<A> result(kRows);
  expect_parts_alike(kRows, result, product);
}

TEST(NonTemporalStep, OfBfloat16WithMasters) {
  constexpr int64_t kRows = 2500, kCount = kRows * kCols;
  const auto gradient = random_values<float>(kCount, 1);
  const double lr = 0.01;
  const int64_t step = 3;
  const auto run = [&](int64_t at_once, bfloat16* value) {
    auto master = random_values<float>(kCount, 2), m = random_values<float>(kCount, 3),
         v = random_values<float>(kCount, 4, 0, 1);
    for (int64_t i = 0; i < kCount; i += at_once) {
      const kernels::StepPart<bfloat16> part{gradient.data() + i, std::min(at_once, kCount - i), value + i, i,
                                             0};
      cpu::adam_step<bfloat16>({.slice = {.parts = {&part, 1},
                                          .master = master.data(),
                                          .written = false,
                                          .steps = &step,
                                          .lr = &lr,
                                          .lr_factor = 1,
                                          .weight_decay = 0.1,
                                          .gradient_norm = nullptr,
                                          .clip = 0},
                                .m = m.data(),
                                .v = v.data(),
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .eps = 1e-8,
                                .decoupled = true});
    }
  };
  Matrix<bfloat16> whole(kRows), parts(kRows);
  run(kCount, whole.data);
  run(kPart * kCols, parts.data);
  EXPECT_TRUE(same_rows(whole.data, parts.data, kCount));
}

}  // namespace
}  // namespace heed
