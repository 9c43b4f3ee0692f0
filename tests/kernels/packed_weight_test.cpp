// Products by a weight whose packed copy is kept.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/linear.h>

#include "packed_copies.h"

namespace heed {
namespace {

using kernels::LinearForward;
using test::Copies;

template <class T>
std::vector<T> uniform(int64_t count, std::mt19937& engine) {
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = T(distribution(engine));
  return values;
}

/// y = x Wᵀ, the weight packed unless `copies` is null.
template <class T>
void multiply(const std::vector<T>& x, const std::vector<T>& weight, Copies* copies, std::vector<T>& y,
              int64_t rows, int64_t in, int64_t out) {
  cpu::linear_forward(LinearForward<T>{.x = x.data(),
                                       .weight = weight.data(),
                                       .copies = copies,
                                       .bias = nullptr,
                                       .activation = Activation::none,
                                       .dropout = {},
                                       .y = y.data(),
                                       .pre_activation = nullptr,
                                       .rows = rows,
                                       .in = in,
                                       .out = out});
}

TEST(PackedWeight, ANanInOneRowStaysThere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 engine(3);
  const int64_t in = 5, out = 37;
  const auto weight = uniform<float>(out * in, engine);
  Copies copies;
  for (int64_t rows : {1, 2, 13}) {
    std::vector<float> x(static_cast<size_t>(rows * in), 1.0f), y(static_cast<size_t>(rows * out));
    x[static_cast<size_t>((rows - 1) * in)] = nan;
    multiply(x, weight, &copies, y, rows, in, out);
    for (int64_t i = 0; i < rows * out; ++i)
      EXPECT_EQ(std::isnan(y[static_cast<size_t>(i)]), i >= (rows - 1) * out) << rows << " rows, " << i;
  }
}

TEST(PackedWeight, GivesTheSameBitsWithAnyThreads) {
  std::mt19937 engine(4);
  for (int64_t rows : {1, 3, 12, 13, 200}) {
    const int64_t in = 1030, out = 300;
    const auto x = uniform<float>(rows * in, engine), weight = uniform<float>(out * in, engine);
    std::vector<float> first;
    std::vector<std::byte> first_copy;
    for (int threads : {1, 2, 4}) {
      set_thread_count(threads);
      Copies copies;
      for (bool pack : {true, false}) {
        if (!pack && rows <= 8) continue;  // where nothing is packed the sums have another order
        std::vector<float> y(static_cast<size_t>(rows * out));
        multiply(x, weight, pack ? &copies : nullptr, y, rows, in, out);
        if (first.empty()) first = y;
        EXPECT_EQ(y, first) << rows << " rows, " << threads << " threads";
      }
      if (first_copy.empty()) first_copy = copies.bytes();
      EXPECT_EQ(copies.bytes(), first_copy);
    }
  }
  set_thread_count(1);
}

TEST(PackedWeight, IsMadeOnceAndOnlyForFewRows) {
  std::mt19937 engine(5);
  const int64_t in = 16, out = 24;
  const auto check = [&]<class T>(int64_t rows, bool packs) {
    const auto x = uniform<T>(rows * in, engine), weight = uniform<T>(out * in, engine);
    std::vector<T> y(static_cast<size_t>(rows * out)), again = y;
    Copies copies;
    multiply(x, weight, &copies, y, rows, in, out);
    EXPECT_EQ(copies.made(), packs) << rows << " rows";
    multiply(x, weight, &copies, again, rows, in, out);  // Copies fails if it is asked for a second one
    EXPECT_EQ(std::memcmp(y.data(), again.data(), y.size() * sizeof(T)), 0);
  };
  for (const int64_t rows : {1, 8, 40, 256}) {
    check.operator()<float>(rows, true);
    check.operator()<double>(rows, true);
    check.operator()<bfloat16>(rows, false);
  }
  check.operator()<float>(257, false);
  check.operator()<double>(257, false);
}

}  // namespace
}  // namespace heed
