#include <heed/kernels/softmax.h>

#include "error_bound.h"

namespace heed::test {
namespace {

template <class Store, class Acc, class T>
std::vector<Store> plain_softmax(const std::vector<T>& x, int64_t rows, int64_t cols, bool log) {
  std::vector<Store> y(x.size());
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x.data() + r * cols;
    Acc most = -std::numeric_limits<Acc>::infinity();
    for (int64_t c = 0; c < cols; ++c) most = std::max(most, Acc(in[c]));
    Acc sum = 0;
    for (int64_t c = 0; c < cols; ++c)
      sum += most == -std::numeric_limits<Acc>::infinity() ? Acc(0) : std::exp(Acc(in[c]) - most);
    for (int64_t c = 0; c < cols; ++c) {
      const Acc value = sum == 0 ? (log ? most : Acc(0))
                        : log    ? Acc(in[c]) - most - std::log(sum)
                                 : std::exp(Acc(in[c]) - most) / sum;
      y[r * cols + c] = Store(value);
    }
  }
  return y;
}

template <class Store, class Acc, class T>
std::vector<Store> plain_softmax_backward(const std::vector<T>& y, const std::vector<T>& gy, int64_t rows,
                                          int64_t cols, bool log) {
  std::vector<Store> gx(y.size());
  for (int64_t r = 0; r < rows; ++r) {
    const T* out = y.data() + r * cols;
    const T* g = gy.data() + r * cols;
    Acc dot = 0;
    for (int64_t c = 0; c < cols; ++c) dot += log ? Acc(g[c]) : Acc(g[c]) * Acc(out[c]);
    for (int64_t c = 0; c < cols; ++c)
      gx[r * cols + c] =
          Store(log ? Acc(g[c]) - std::exp(Acc(out[c])) * dot : Acc(out[c]) * (Acc(g[c]) - dot));
  }
  return gx;
}

template <class T>
double largest_row_sum(const std::vector<T>& values, int64_t cols) {
  double most = 0;
  for (size_t first = 0; first < values.size(); first += static_cast<size_t>(cols)) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += static_cast<double>(values[first + static_cast<size_t>(c)]);
    most = std::max(most, std::fabs(sum));
  }
  return most;
}

template <class T>
class Softmax : public ::testing::Test {};
TYPED_TEST_SUITE(Softmax, FloatingTypes);

constexpr int64_t kLengths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 129, 1000, 5003};

TYPED_TEST(Softmax, MatchesReference) {
  using T = TypeParam;
  using R = reference_t<T>;
  for (const bool log : {false, true})
    for (const int64_t cols : kLengths) {
      const int64_t rows = cols > 200 ? 3 : 21;
      const auto x = random_values<T>(rows * cols, 1, 3);
      const auto gy = random_values<T>(rows * cols, 2);
      std::vector<T> y(x.size(), quiet_nan<T>()), gx(x.size(), quiet_nan<T>());
      cpu::softmax_forward<T>({.x = x.data(), .y = y.data(), .rows = rows, .cols = cols, .log = log});
      expect_within<T>(y, plain_softmax<R, R>(x, rows, cols, log),
                       plain_softmax<T, accumulator_t<T>>(x, rows, cols, log), 2, "y");
      cpu::softmax_backward<T>({.y = y.data(),
                                .gy = gy.data(),
                                .gx = gx.data(),
                                .rows = rows,
                                .cols = cols,
                                .log = log,
                                .accumulate = false});
      const auto exact = plain_softmax_backward<R, R>(y, gy, rows, cols, log);
      const auto plain = plain_softmax_backward<T, accumulator_t<T>>(y, gy, rows, cols, log);
      // gx is a difference: of gy and, with the logarithm, a share of the row's whole gradient.
      expect_within<T>(gx, exact, plain, 3, "gx", std::max(largest(exact), largest_row_sum(gy, cols)));

      std::vector<T> in_place = gy;
      cpu::softmax_backward<T>({.y = y.data(),
                                .gy = in_place.data(),
                                .gx = in_place.data(),
                                .rows = rows,
                                .cols = cols,
                                .log = log,
                                .accumulate = false});
      std::vector<T> added(x.size(), T(1.0f));
      cpu::softmax_backward<T>({.y = y.data(),
                                .gy = gy.data(),
                                .gx = added.data(),
                                .rows = rows,
                                .cols = cols,
                                .log = log,
                                .accumulate = true});
      for (size_t i = 0; i < gx.size(); ++i) {
        ASSERT_EQ(double(in_place[i]), double(gx[i]));
        ASSERT_NEAR(double(added[i]), double(gx[i]) + 1, 2 * epsilon<T>() * (1 + std::fabs(double(gx[i]))));
      }
    }
}

TYPED_TEST(Softmax, RowsSumToOne) {
  using T = TypeParam;
  const int64_t cols = 1 << 18;
  const auto x = random_values<T>(cols, 3, 2);
  std::vector<T> y(cols, quiet_nan<T>());
  cpu::softmax_forward<T>({.x = x.data(), .y = y.data(), .rows = 1, .cols = cols, .log = false});
  double sum = 0;
  for (const T value : y) sum += double(value);
  EXPECT_NEAR(sum, 1, epsilon<T>() * std::sqrt(double(cols)));
}

TYPED_TEST(Softmax, HugeAndMinusInfiniteEntries) {
  using T = TypeParam;
  const float inf = std::numeric_limits<float>::infinity();
  for (const int64_t cols : {1, 5, 8, 33}) {
    std::vector<T> x(3 * cols, T(-inf));
    x[cols] = T(1e30f);                                              // row 1: one large value among -inf
    for (int64_t c = 0; c < cols; ++c) x[2 * cols + c] = T(-1e30f);  // row 2: equal and very low
    std::vector<T> y(x.size(), quiet_nan<T>()), gx(x.size(), quiet_nan<T>());
    cpu::softmax_forward<T>({.x = x.data(), .y = y.data(), .rows = 3, .cols = cols, .log = false});
    for (int64_t c = 0; c < cols; ++c) {
      EXPECT_EQ(double(y[c]), 0);
      EXPECT_EQ(double(y[cols + c]), c == 0);
      EXPECT_NEAR(double(y[2 * cols + c]), 1.0 / double(cols), epsilon<T>() / double(cols));
    }
    cpu::softmax_forward<T>({.x = x.data(), .y = y.data(), .rows = 3, .cols = cols, .log = true});
    for (int64_t c = 0; c < cols; ++c) {
      EXPECT_EQ(double(y[c]), -inf);
      EXPECT_EQ(double(y[cols + c]), c == 0 ? 0.0 : -inf);
    }
    const auto gy = random_values<T>(3 * cols, 4);
    cpu::softmax_backward<T>({.y = y.data(),
                              .gy = gy.data(),
                              .gx = gx.data(),
                              .rows = 3,
                              .cols = cols,
                              .log = true,
                              .accumulate = false});
    for (int64_t c = 0; c < cols; ++c) EXPECT_EQ(double(gx[c]), 0) << "no gradient through a row of -inf";
  }
}

TEST(Softmax, GradientAgreesWithDifferences) {
  const int64_t cols = 9;
  const auto x = random_values<double>(cols, 5);
  const auto gy = random_values<double>(cols, 6);
  for (const bool log : {false, true}) {
    const auto loss = [&](const std::vector<double>& at) {
      std::vector<double> y(cols);
      cpu::softmax_forward<double>({.x = at.data(), .y = y.data(), .rows = 1, .cols = cols, .log = log});
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c) sum += y[c] * gy[c];
      return sum;
    };
    std::vector<double> y(cols), gx(cols);
    cpu::softmax_forward<double>({.x = x.data(), .y = y.data(), .rows = 1, .cols = cols, .log = log});
    cpu::softmax_backward<double>({.y = y.data(),
                                   .gy = gy.data(),
                                   .gx = gx.data(),
                                   .rows = 1,
                                   .cols = cols,
                                   .log = log,
                                   .accumulate = false});
    for (int64_t c = 0; c < cols; ++c) {
      auto up = x, down = x;
      up[c] += 1e-5;
      down[c] -= 1e-5;
      EXPECT_NEAR(gx[c], (loss(up) - loss(down)) / 2e-5, 1e-8);
    }
  }
}

TEST(Softmax, NoRowsOrNoColumns) {
  cpu::softmax_forward<float>({.x = nullptr, .y = nullptr, .rows = 0, .cols = 5, .log = false});
  cpu::softmax_forward<float>({.x = nullptr, .y = nullptr, .rows = 5, .cols = 0, .log = true});
  cpu::softmax_backward<float>(
      {.y = nullptr, .gy = nullptr, .gx = nullptr, .rows = 5, .cols = 0, .log = true, .accumulate = false});
}

}  // namespace
}  // namespace heed::test
