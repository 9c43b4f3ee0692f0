// Products by tiles, plain where the processor has no AMX: what gemm_test does not ask of all backends.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/gemm/gemm_amx.h>
#include <heed/kernels/cpu/gemm/gemm_path.h>
#include <heed/kernels/cpu/simd/isa.h>
#include <heed/kernels/gemm.h>

namespace heed {
namespace {

class AmxGemm : public testing::Test {
 public:
  AmxGemm() { cpu::set_gemm_backend(cpu::GemmBackend::amx); }
  ~AmxGemm() override {
    cpu::set_gemm_backend(cpu::GemmBackend::automatic);
    set_thread_count(1);
  }
};

/// C [m, n] = op(A) op(B) of floats.
struct Product {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  std::vector<float> a = std::vector<float>(size_t(m * k)), b = std::vector<float>(size_t(k * n)), c = {};

  float& at_a(int64_t i, int64_t p) { return a[size_t(transpose_a ? p * m + i : i * k + p)]; }
  float& at_b(int64_t p, int64_t j) { return b[size_t(transpose_b ? j * k + p : p * n + j)]; }

  /// Numbers of both signs whose exponents are spread evenly from `least` to `most`.
  void fill(int least, int most) {
    std::mt19937 engine(5);
    std::uniform_real_distribution<float> uniform(1.0f, 2.0f);
    std::uniform_int_distribution<int> exponent(least, most), sign(0, 1);
    for (auto* values : {&a, &b})
      for (float& x : *values)
        x = std::ldexp(sign(engine) ? uniform(engine) : -uniform(engine), exponent(engine));
  }

  void run() {
    c.assign(size_t(m * n), std::numeric_limits<float>::quiet_NaN());
    cpu::gemm(kernels::Gemm<float>{a.data(), b.data(), c.data(), m, n, k, transpose_a ? m : k,
                                   transpose_b ? k : n, n, transpose_a, transpose_b, 1, 0, 0, 0, 1.0f,
                                   false});
  }

  /// |error| <= units u (|A| |B|) + slack, u the unit roundoff of floats.
  void check(double units, double slack = 0) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        long double sum = 0, size = 0;
        for (int64_t p = 0; p < k; ++p) {
          const long double term = static_cast<long double>(at_a(i, p)) * at_b(p, j);
          sum += term;
          size += std::fabs(term);
        }
        const double error = double(std::fabs(static_cast<long double>(c[size_t(i * n + j)]) - sum));
        ASSERT_LE(error, units * 0x1p-24 * double(size) + slack) << i << ", " << j;
      }
    }
  }
};

TEST_F(AmxGemm, IsAsExactAsProductsOfFloats) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      for (const auto& [m, n, k] :
           {std::array<int64_t, 3>{64, 64, 32}, {65, 50, 200}, {130, 20, 128}, {20, 130, 300}}) {
        Product p{m, n, k, ta, tb};
        p.fill(-3, 0);
        p.run();
        p.check(4);
      }
    }
  }
  Product wide{33, 47, 64};
  wide.fill(-40, 40);
  wide.run();
  wide.check(4);
}

/// Operands of bf16 that do not fit into the caches are packed while others are multiplied. Sums of small
/// integers are exact.
TEST_F(AmxGemm, LargeProductsOfHalfFloatsAreExact) {
  constexpr int64_t kM = 40, kN = 1100, kK = 470;
  std::mt19937 engine(7);
  std::uniform_int_distribution<int> digit(-3, 3);
  std::vector<int> a(kM * kK), b(kK * kN);
  for (auto* values : {&a, &b})
    for (int& x : *values) x = digit(engine);
  std::vector<float> expected(kM * kN, 0.0f);
  for (int64_t i = 0; i < kM; ++i)
    for (int64_t p = 0; p < kK; ++p)
      for (int64_t j = 0; j < kN; ++j)
        expected[size_t(i * kN + j)] += float(a[size_t(i * kK + p)] * b[size_t(p * kN + j)]);
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      std::vector<bfloat16> x(a.size()), y(b.size());
      for (int64_t p = 0; p < kK; ++p) {
        for (int64_t i = 0; i < kM; ++i)
          x[size_t(ta ? p * kM + i : i * kK + p)] = bfloat16(float(a[size_t(i * kK + p)]));
        for (int64_t j = 0; j < kN; ++j)
          y[size_t(tb ? j * kK + p : p * kN + j)] = bfloat16(float(b[size_t(p * kN + j)]));
      }
      std::vector<float> c(expected.size());
      cpu::gemm(kernels::Gemm<bfloat16, float>{x.data(), y.data(), c.data(), kM, kN, kK, ta ? kM : kK,
                                               tb ? kK : kN, kN, ta, tb, 1, 0, 0, 0, 1.0f, false});
      EXPECT_EQ(c, expected) << ta << tb;
    }
  }
}

/// A float below 2^-110 loses its last part, one below 2^-126 is zero; what stands beside it in a pair is
/// untouched.
TEST_F(AmxGemm, TinyNumbersAreTinyAndNothingElse) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      Product p{40, 40, 64, ta, tb};
      p.fill(-2, 0);
      for (int64_t i = 0; i < 40; ++i) {
        for (int64_t q = i % 3; q < 64; q += 3) {
          p.at_a(i, q) = std::ldexp(1.2345678f, -105 - int(q));
          p.at_b(q, i) = std::ldexp(-1.7654321f, -105 - int(q));
        }
      }
      p.run();
      p.check(4, 64 * 0x1p-125);
    }
  }
}

/// Results of about 1 from such numbers: each is taken to within 2^-126.
TEST_F(AmxGemm, TinyNumbersKeepTheDigitsAboveTheLeastNormalOne) {
  for (int exponent : {-80, -101, -105, -112, -116, -120, -124, -130}) {
    Product p{40, 40, 64};
    p.fill(0, 1);
    for (float& x : p.a) x = std::ldexp(x, exponent);
    for (float& x : p.b) x = std::ldexp(x, std::min(-exponent, 120));
    double largest = 0;
    for (float x : p.b) largest = std::max(largest, double(std::fabs(x)));
    p.run();
    p.check(4, 64 * largest * 0x1p-126 * 1.01);
  }
}

TEST(Gemm, WorksWhenStaticObjectsAreDestroyed) {
  struct Late {
    Product product;
    ~Late() {
      product.run();
      product.check(32);
      Product larger{300, 300, 300};
      larger.fill(-3, 0);
      larger.run();
      larger.check(32);
      _exit(testing::Test::HasFailure() ? 1 : 7);
    }
  };
  for (const auto backend : {cpu::GemmBackend::amx, cpu::GemmBackend::onednn, cpu::GemmBackend::automatic}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      static Late late{{200, 200, 200}};
      cpu::set_gemm_backend(backend);
      late.product.fill(-3, 0);
      late.product.run();
      std::exit(2);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << int(backend) << ": " << status;
  }
}

TEST_F(AmxGemm, NumbersWithoutPartsReachWhatTheyBelongTo) {
  constexpr float kMax = std::numeric_limits<float>::max(),
                  kInfinity = std::numeric_limits<float>::infinity();
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      Product p{100, 90, 70, ta, tb};
      p.fill(-3, 0);
      p.run();
      const std::vector<float> without = p.c;
      p.at_a(70, 33) = kInfinity;
      p.at_b(50, 3) = std::numeric_limits<float>::quiet_NaN();
      p.run();
      for (int64_t i = 0; i < 100; ++i) {
        for (int64_t j = 0; j < 90; ++j) {
          const float value = p.c[size_t(i * 90 + j)], before = without[size_t(i * 90 + j)];
          if (j == 3)
            EXPECT_TRUE(std::isnan(value));
          else if (i == 70)
            EXPECT_TRUE(std::isinf(value)) << j;
          else if (j >= 32 && (i < 64 || i >= 96))
            EXPECT_EQ(value, before) << i << ", " << j;  // of other blocks
          else
            EXPECT_NEAR(value, before, 1e-4) << i << ", " << j;
        }
      }
      // A number that rounds to infinity in bf16.
      Product most{64, 64, 40, ta, tb};
      most.fill(-3, 0);
      for (int64_t q = 0; q < 40; ++q) most.at_b(q, 9) = std::ldexp(most.at_b(q, 9), -126);
      for (int64_t q = 0; q < 40; ++q) most.at_a(5, q) = q == 7 ? kMax : 0.0f;
      most.run();
      EXPECT_NEAR(most.c[5 * 64 + 9], kMax * most.at_b(7, 9), 1e-6);
      EXPECT_TRUE(std::isfinite(most.c[6 * 64 + 9]));
    }
  }
}

TEST_F(AmxGemm, BitsDoNotDependOnTheThreads) {
  for (bool finite : {true, false}) {
    Product p{330, 200, 150, true, false};
    p.fill(-3, 0);
    if (!finite) p.at_a(100, 20) = p.at_b(20, 130) = std::numeric_limits<float>::infinity();
    set_thread_count(1);
    p.run();
    const std::vector<float> one = p.c;
    for (int threads : {2, 3, 16}) {
      set_thread_count(threads);
      p.run();
      EXPECT_EQ(std::memcmp(p.c.data(), one.data(), one.size() * sizeof(float)), 0) << threads << " threads";
    }
  }
}

/// The rows and columns of all parts, in their order.
std::vector<std::array<int64_t, 2>> sizes(int64_t m, int64_t n, bool splits_k = false) {
  const cpu::AmxBlocking parts(m, n, splits_k);
  std::vector<std::array<int64_t, 2>> sizes;
  for (int64_t i = 0; i < parts.count(); ++i) sizes.push_back({parts[i].rows, parts[i].cols});
  return sizes;
}

TEST(AmxBlocking, PacksFewLinesInFourTasksOrMore) {
  using Sizes = std::vector<std::array<int64_t, 2>>;
  EXPECT_EQ(sizes(672, 512), (Sizes{{320, 256}, {320, 256}, {352, 256}, {352, 256}}));
  EXPECT_EQ(sizes(672, 128), (Sizes{{160, 128}, {160, 128}, {160, 128}, {192, 128}}));
  EXPECT_EQ(sizes(256, 768), Sizes(4, {256, 192}));
  EXPECT_EQ(sizes(256, 2304), Sizes(6, {256, 384}));  // the five that have room would share unevenly
  EXPECT_EQ(sizes(1024, 512), Sizes(4, {256, 512}));
  EXPECT_EQ(sizes(4096, 768).size(), 22u);
  // Too small for four.
  EXPECT_EQ(sizes(100, 190), (Sizes{{100, 96}, {100, 94}}));
  EXPECT_EQ(sizes(64, 200), (Sizes{{64, 96}, {64, 104}}));
  EXPECT_EQ(sizes(48, 48), (Sizes{{48, 48}}));
  // A split K makes two tasks of each.
  EXPECT_EQ(sizes(128, 512, true), (Sizes{{128, 512}}));
  EXPECT_EQ(sizes(512, 128, true), (Sizes{{256, 128}, {256, 128}}));
}

TEST(AmxBlocking, PartsAreAllOfCInWholeBlocks) {
  for (int64_t m = 1; m < 2000; m += m < 200 ? 7 : 131) {
    for (int64_t n = 1; n < 2000; n += n < 200 ? 7 : 131) {
      const cpu::AmxBlocking parts(m, n, false);
      int64_t elements = 0, row = 0, col = 0;
      for (int64_t i = 0; i < parts.count(); ++i) {
        const auto part = parts[i];
        ASSERT_EQ(part.row, row) << m << " x " << n;
        ASSERT_EQ(part.col, col) << m << " x " << n;
        ASSERT_TRUE(part.rows > 0 && part.rows <= cpu::kMaxTaskRows);
        ASSERT_TRUE(part.cols > 0 && part.cols <= cpu::kMaxTaskCols);
        ASSERT_TRUE(part.rows % cpu::kAmxBlockLines == 0 || row + part.rows == m);
        ASSERT_TRUE(part.cols % cpu::kAmxBlockLines == 0 || col + part.cols == n);
        elements += part.rows * part.cols;
        col += part.cols;
        if (col == n) col = 0, row += part.rows;
      }
      ASSERT_EQ(elements, m * n);
      if ((m / 64) * (n / 64) >= 4) {
        ASSERT_GE(parts.count(), 4) << m << " x " << n;
        ASSERT_TRUE(parts.count() % 2 == 0 || parts.count() > 8) << m << " x " << n;
      }
    }
  }
}

/// An element has the same bits in a product of other rows and columns, which is cut elsewhere.
TEST_F(AmxGemm, BitsDoNotDependOnTheCut) {
  constexpr int64_t kRows = 450, kCols = 300, kDepth = 150, kRow = 96, kCol = 160;
  Product whole{kRows, kCols, kDepth};
  whole.fill(-3, 0);
  whole.run();
  Product part{kRows - kRow, kCols - kCol, kDepth};
  for (int64_t i = 0; i < part.m; ++i)
    for (int64_t p = 0; p < kDepth; ++p) part.at_a(i, p) = whole.at_a(kRow + i, p);
  for (int64_t p = 0; p < kDepth; ++p)
    for (int64_t j = 0; j < part.n; ++j) part.at_b(p, j) = whole.at_b(p, kCol + j);
  ASSERT_NE(sizes(part.m, part.n), sizes(whole.m, whole.n));
  part.run();
  for (int64_t i = 0; i < part.m; ++i)
    for (int64_t j = 0; j < part.n; ++j)
      ASSERT_EQ(part.c[size_t(i * part.n + j)], whole.c[size_t((kRow + i) * kCols + kCol + j)])
          << i << ", " << j;
}

TEST(AmxBlock, ThePlainLoopHasTheBitsOfTheProcessor) {
  if (!cpu::has_amx()) GTEST_SKIP() << "this processor has no AMX";
  std::mt19937 engine(3);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  constexpr int64_t kSteps = 3, kElements = 2 * kSteps * cpu::kAmxParts * cpu::kAmxTileElements;
  alignas(64) static bfloat16 a[kElements], b[kElements];
  for (auto* values : {a, b}) {
    for (int64_t i = 0; i < kElements; ++i)  // some subnormal, some whose products are
      values[i] = bfloat16(std::ldexp(uniform(engine), i % 61 == 0 ? -130 : i % 31 == 0 ? -70 : -int(i % 5)));
  }
  const cpu::AmxTiles tiles;
  constexpr int kParts = int{cpu::kAmxParts}, kFew = int{cpu::kAmxFewParts};
  for (const auto& [a_parts, b_parts] : {std::array<int, 2>{1, 1}, {kFew, 1}, {1, kFew}, {kParts, kParts}}) {
    for (int rows : {1, 2}) {
      for (int cols : {1, 2}) {
        alignas(64) float c[32 * 32], expected[32 * 32], added[32 * 32];
        for (float& x : added) x = uniform(engine);
        for (bool adds : {false, true}) {
          std::fill_n(c, 32 * 32, 7.0f);
          std::fill_n(expected, 32 * 32, 7.0f);
          const int64_t a_step = a_parts * cpu::kAmxTileElements, b_step = b_parts * cpu::kAmxTileElements;
          cpu::AmxBlock block{.a = a,
                              .a_row = cpu::kAmxDepth,
                              .a_tile = kSteps * a_step,
                              .a_step = a_step,
                              .b = b,
                              .b_row = cpu::kAmxDepth,
                              .b_tile = kSteps * b_step,
                              .b_step = b_step,
                              .c = c,
                              .ldc = 32,
                              .added = adds ? added : nullptr,
                              .added_stride = 32,
                              .steps = kSteps,
                              .row_tiles = rows,
                              .col_tiles = cols,
                              .a_parts = a_parts,
                              .b_parts = b_parts};
          cpu::amx_block(block);
          block.c = expected;
          cpu::plain_amx_block(block);
          for (int i = 0; i < 32 * 32; ++i) ASSERT_EQ(c[i], expected[i]) << i / 32 << ", " << i % 32;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heed
