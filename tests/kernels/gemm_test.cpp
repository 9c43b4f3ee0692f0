#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_path.h>
#include <heed/kernels/gemm.h>

namespace heed {
namespace {

using kernels::Gemm;

template <class T>
constexpr double kRoundoff = std::is_same_v<T, double>  ? 0x1p-53
                             : std::is_same_v<T, float> ? 0x1p-24
                                                        : 0x1p-8;

struct Case {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  int64_t pad_a = 0, pad_b = 0, pad_c = 0;  // row stride minus row length
  float alpha = 1;
  bool accumulate = false;
  int64_t batch = 1;
  bool repeat_a = false, repeat_b = false;  // stride 0
};

std::string describe(const Case& c) {
  return concat(c.m, "x", c.n, "x", c.k, " trans ", c.transpose_a, c.transpose_b, " pad ", c.pad_a, ",",
                c.pad_b, ",", c.pad_c, " alpha ", c.alpha, " acc ", c.accumulate, " batch ", c.batch);
}

/// Operands with NaN in every gap between rows, and C with NaN wherever nothing may be read.
template <class T, class C>
struct Problem {
  Case shape;
  std::vector<T> a, b;
  std::vector<C> c, before;
  Gemm<T, C> args;

  explicit Problem(const Case& s, uint32_t seed = 1) : shape(s) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    const auto fill = [&](auto& data, int64_t matrices, int64_t rows, int64_t cols, int64_t pad) {
      using E = typename std::decay_t<decltype(data)>::value_type;
      data.assign(size_t(matrices * rows * (cols + pad)), E(std::numeric_limits<float>::quiet_NaN()));
      for (int64_t r = 0; r < matrices * rows; ++r) {
        for (int64_t j = 0; j < cols; ++j) data[size_t(r * (cols + pad) + j)] = E(uniform(engine));
      }
      return rows * (cols + pad);
    };
    const int64_t a_rows = s.transpose_a ? s.k : s.m, a_cols = s.transpose_a ? s.m : s.k;
    const int64_t b_rows = s.transpose_b ? s.n : s.k, b_cols = s.transpose_b ? s.k : s.n;
    const int64_t stride_a = fill(a, s.repeat_a ? 1 : s.batch, a_rows, a_cols, s.pad_a);
    const int64_t stride_b = fill(b, s.repeat_b ? 1 : s.batch, b_rows, b_cols, s.pad_b);
    const int64_t stride_c = fill(c, s.batch, s.m, s.n, s.pad_c);
    if (!s.accumulate) std::fill(c.begin(), c.end(), C(std::numeric_limits<float>::quiet_NaN()));
    before = c;
    args = {a.data(),
            b.data(),
            c.data(),
            s.m,
            s.n,
            s.k,
            a_cols + s.pad_a,
            b_cols + s.pad_b,
            s.n + s.pad_c,
            s.transpose_a,
            s.transpose_b,
            s.batch,
            s.repeat_a ? 0 : stride_a,
            s.repeat_b ? 0 : stride_b,
            stride_c,
            s.alpha,
            s.accumulate};
  }

  long double at_a(int64_t q, int64_t i, int64_t p) const {
    return a[size_t(q * args.stride_a + (shape.transpose_a ? p * args.lda + i : i * args.lda + p))];
  }
  long double at_b(int64_t q, int64_t p, int64_t j) const {
    return b[size_t(q * args.stride_b + (shape.transpose_b ? j * args.ldb + p : p * args.ldb + j))];
  }

  /// |error| <= (k + 2) u |alpha| (|A| |B|), u the unit roundoff of the sums, then one rounding of the
  /// addition to C and one into C's type.
  void check() const {
    const long double u = kRoundoff<accumulator_t<T>>;
    for (int64_t q = 0; q < shape.batch; ++q) {
      for (int64_t i = 0; i < shape.m; ++i) {
        for (int64_t j = 0; j < shape.n + shape.pad_c; ++j) {
          const size_t at = size_t(q * args.stride_c + i * args.ldc + j);
          if (j >= shape.n) {
            ASSERT_EQ(std::memcmp(&c[at], &before[at], sizeof(C)), 0) << "between rows: " << describe(shape);
            continue;
          }
          long double sum = 0, size = 0;
          for (int64_t p = 0; p < shape.k; ++p) {
            const long double term = at_a(q, i, p) * at_b(q, p, j);
            sum += term;
            size += std::fabs(term);
          }
          const long double c0 = shape.accumulate ? static_cast<long double>(before[at]) : 0.0L;
          const long double exact = shape.alpha * sum + c0;
          const long double bound = (shape.k + 2) * u * std::fabs(shape.alpha) * size +
                                    2 * u * std::fabs(c0) + 1.01L * kRoundoff<C> * std::fabs(exact) + 1e-40L;
          ASSERT_LE(std::fabs(static_cast<long double>(c[at]) - exact), bound)
              << describe(shape) << " at " << q << ", " << i << ", " << j;
        }
      }
    }
  }
};

template <class Pair>
class GemmOf : public testing::Test {
 public:
  using T = typename Pair::first_type;
  using C = typename Pair::second_type;
  void run(const Case& c) {
    Problem<T, C> problem(c);
    cpu::gemm(problem.args);
    problem.check();
  }
};
using Instances = testing::Types<std::pair<float, float>, std::pair<double, double>,
                                 std::pair<bfloat16, bfloat16>, std::pair<bfloat16, float>>;
TYPED_TEST_SUITE(GemmOf, Instances);

constexpr int64_t kSizes[] = {1, 7, 31, 32, 33, 127, 129, 1025};

TYPED_TEST(GemmOf, SizesAndTransposes) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      for (int64_t size : kSizes) {
        for (int64_t other : {1, 7, 33}) {
          this->run({size, other, other, ta, tb});
          this->run({other, size, other, ta, tb});
          this->run({other, other, size, ta, tb});
        }
      }
      this->run({129, 127, 127, ta, tb});
      this->run({127, 129, 33, ta, tb});
    }
  }
}

TYPED_TEST(GemmOf, EveryRemainderOfRowsAndColumns) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      for (int64_t m = 1; m <= 26; ++m) this->run({m, 19, 5, ta, tb});
      for (int64_t n = 1; n <= 66; ++n) this->run({5, n, 6, ta, tb});
      for (int64_t k = 1; k <= 18; ++k) this->run({5, 17, k, ta, tb});
    }
  }
}

TYPED_TEST(GemmOf, RowStridesAlphaAndAccumulate) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      for (bool accumulate : {false, true}) {
        this->run({33, 31, 127, ta, tb, 3, 5, 7, 0.125f, accumulate});
        this->run({31, 47, 33, ta, tb, 1, 2, 3, -1.7f, accumulate});
        this->run({20, 20, 40, ta, tb, 2100, 2100, 1, 1.0f, accumulate});  // rows far apart
        this->run({97, 130, 1025, ta, tb, 0, 0, 0, 1.0f, accumulate});     // several pieces of K
        this->run({50, 128, 1025, ta, tb, 1, 2, 3, 0.5f, accumulate});     // read as they lie, halves summed
        this->run({13, 1550, 530, ta, tb, 1, 2, 3, -1.7f, accumulate});    // in strips
        this->run({9, 130, 17000, ta, tb, 1, 2, 3, 0.5f, accumulate});     // a piece of K at a time
      }
    }
  }
}

TYPED_TEST(GemmOf, Batches) {
  for (bool accumulate : {false, true}) {
    this->run({13, 18, 9, false, true, 2, 1, 3, 1.0f, accumulate, 5});
    this->run({13, 18, 9, true, false, 0, 0, 0, 2.0f, accumulate, 4, true, false});
    this->run({13, 18, 9, false, false, 0, 0, 0, 1.0f, accumulate, 4, false, true});
    this->run({1, 33, 64, false, true, 0, 0, 0, 1.0f, accumulate, 70});
  }
  this->run({130, 110, 100, false, true, 0, 0, 0, 1.0f, false, 2});  // each large enough to be cut
}

TYPED_TEST(GemmOf, EmptySums) {
  this->run({5, 9, 0});
  this->run({5, 9, 0, true, true, 0, 0, 2, 1.0f, true});
  Problem<typename TestFixture::T, typename TestFixture::C> none(
      {4, 4, 4, false, false, 0, 0, 0, 1.0f, true});
  for (int64_t Gemm<typename TestFixture::T, typename TestFixture::C>::*size :
       {&decltype(none.args)::m, &decltype(none.args)::n, &decltype(none.args)::batch}) {
    auto args = none.args;
    args.*size = 0;
    cpu::gemm(args);
    for (size_t i = 0; i < none.c.size(); ++i) EXPECT_EQ(float(none.c[i]), float(none.before[i]));
  }
}

TYPED_TEST(GemmOf, BitsDoNotDependOnTheThreads) {
  using T = typename TestFixture::T;
  using C = typename TestFixture::C;
  for (const Case& c : {Case{300, 200, 150, false, true}, Case{128, 128, 672, true, false}, Case{97, 500, 40},
                        Case{230, 128, 96}, Case{40, 1600, 600, false, true}, Case{70, 150, 15000},
                        Case{17, 23, 90, false, true, 0, 0, 0, 1.0f, true, 40}}) {
    std::vector<C> expected;
    for (int threads : {1, 2, 4}) {
      set_thread_count(threads);
      Problem<T, C> problem(c);
      cpu::gemm(problem.args);
      if (threads == 1) expected = problem.c;
      ASSERT_EQ(std::memcmp(problem.c.data(), expected.data(), expected.size() * sizeof(C)), 0)
          << describe(c);
    }
    set_thread_count(1);
  }
}

TYPED_TEST(GemmOf, NanAndInfinityReachWhatTheyBelongTo) {
  using T = typename TestFixture::T;
  using C = typename TestFixture::C;
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      Problem<T, C> p({37, 41, 50, ta, tb});
      const int64_t row = 11, col = 29;
      p.a[size_t(ta ? 3 * p.args.lda + row : row * p.args.lda + 3)] =
          T(std::numeric_limits<float>::quiet_NaN());
      p.b[size_t(tb ? col * p.args.ldb + 7 : 7 * p.args.ldb + col)] =
          T(std::numeric_limits<float>::infinity());
      cpu::gemm(p.args);
      for (int64_t i = 0; i < 37; ++i) {
        for (int64_t j = 0; j < 41; ++j) {
          const double value = double(p.c[size_t(i * p.args.ldc + j)]);
          if (i == row)
            EXPECT_TRUE(std::isnan(value));
          else if (j == col)
            EXPECT_TRUE(std::isinf(value));
          else
            EXPECT_TRUE(std::isfinite(value));
        }
      }
    }
  }
}

TEST(Gemm, ManyColumnsAndALongSum) {
  // Beyond what is packed at a time, in N and in K: exact, since everything is a small whole number.
  for (const Case& c : {Case{3, 5000, 1000, false, true}, Case{2, 40, 300000}}) {
    Problem<float, float> p(c);
    for (float& x : p.a) x = x > 0 ? 1.0f : -1.0f;
    for (float& x : p.b) x = x > 0 ? 1.0f : 0.0f;
    cpu::gemm(p.args);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; j += 7) {
        double sum = 0;
        for (int64_t q = 0; q < c.k; ++q) sum += double(p.at_a(0, i, q) * p.at_b(0, q, j));
        ASSERT_EQ(p.c[size_t(i * c.n + j)], sum);
      }
    }
  }
}

/// The tests above use whichever product is faster; these see that both are right.
class Backends : public testing::TestWithParam<cpu::GemmBackend> {
 public:
  Backends() { cpu::set_gemm_backend(GetParam()); }
  ~Backends() override { cpu::set_gemm_backend(cpu::GemmBackend::automatic); }

  template <class T, class C>
  void run() {
    for (bool ta : {false, true}) {
      for (bool tb : {false, true}) {
        for (bool accumulate : {false, true}) {
          for (const Case& c : {Case{1, 1, 1, ta, tb, 0, 0, 0, 1.0f, accumulate},
                                Case{33, 31, 127, ta, tb, 3, 5, 7, 1.0f, accumulate},
                                Case{230, 150, 70, ta, tb, 0, 0, 0, 1.0f, accumulate},
                                Case{70, 53, 401, ta, tb, 1, 2, 3, 1.0f, accumulate},
                                Case{20, 20, 40, ta, tb, 2100, 2100, 1, -1.7f, accumulate}}) {
            std::vector<C> expected;
            for (int threads : {1, 2, 4}) {
              set_thread_count(threads);
              Problem<T, C> problem(c);
              cpu::gemm(problem.args);
              if (threads == 1) {
                problem.check();
                expected = problem.c;
              }
              ASSERT_EQ(std::memcmp(problem.c.data(), expected.data(), expected.size() * sizeof(C)), 0);
            }
            set_thread_count(1);
          }
        }
      }
    }
  }
};

TEST_P(Backends, MultiplyEqually) {
  run<float, float>();
  run<bfloat16, bfloat16>();
  run<bfloat16, float>();
}

INSTANTIATE_TEST_SUITE_P(Gemm, Backends,
                         testing::Values(cpu::GemmBackend::simd, cpu::GemmBackend::amx,
                                         cpu::GemmBackend::onednn));

TEST(Gemm, RefusesRowsThatOverlap) {
  Problem<float, float> p({4, 4, 4});
  p.args.lda = 3;
  EXPECT_THROW(cpu::gemm(p.args), InternalError);
}

}  // namespace
}  // namespace heed
