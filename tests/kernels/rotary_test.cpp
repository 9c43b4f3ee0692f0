#include <cmath>

#include <gtest/gtest.h>

#include <heed/kernels/rotary.h>

#include "plain_bound.h"

namespace heed {
namespace {

using namespace heed::testing;

template <class T>
class RotaryTest : public ::testing::Test {};
TYPED_TEST_SUITE(RotaryTest, FloatingTypes);

struct Size {
  int64_t rows, heads, rotated_heads, width, rotated;
};
constexpr Size kSizes[] = {{3, 3, 2, 7, 2},    {5, 2, 2, 6, 6},    {4, 3, 1, 34, 34}, {2, 4, 3, 64, 32},
                           {1, 1, 1, 128, 66}, {70, 6, 4, 32, 32}, {0, 2, 1, 8, 8}};

// What a column becomes, from it and its partner.
TYPED_TEST(RotaryTest, EachColumnAndItsPartner) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (const Size& s : kSizes)
    for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved})
      for (const bool inverse : {false, true})
        for (const bool accumulate : {false, true}) {
          const int64_t cols = s.heads * s.width, n = s.rows * cols, entries = 5;
          const auto x = random_values<T>(n, 1), before = random_values<T>(n, 2);
          const auto table = random_values<A>(entries * 2 * s.rotated, 3);
          std::vector<int64_t> positions;
          for (int64_t row = 0; row < s.rows; ++row) positions.push_back(row * 3 % entries);
          auto y = accumulate ? before : poisoned<T>(n);
          cpu::rotary<T>({x.data(), positions.data(), table.data(), y.data(), s.rows, s.heads,
                          s.rotated_heads, s.width, s.rotated, entries, pairing, inverse, accumulate});
          for (int64_t i = 0; i < n; ++i) {
            const int64_t row = i / cols, head = i % cols / s.width, c = i % s.width, half = s.rotated / 2;
            Exact exact = widen(x[i]), size = std::abs(exact);
            if (head < s.rotated_heads && c < s.rotated) {
              const int64_t to =
                  pairing == RotaryPairing::half ? (c < half ? half : -half) : (c % 2 ? -1 : 1);
              const A* const entry = table.data() + positions[row] * 2 * s.rotated;
              const Exact own = widen(x[i]) * widen(entry[c]),
                          other = widen(x[i + to]) * widen(entry[s.rotated + c]) * (inverse ? -1 : 1);
              exact = own + other;
              size = std::abs(own) + std::abs(other);
            }
            if (accumulate) exact += widen(before[i]), size += std::abs(widen(before[i]));
            ASSERT_LE(std::abs(widen(y[i]) - exact), ulp<T>(std::abs(exact)) + 4 * ulp<A>(size))
                << "row " << row << ", head " << head << ", column " << c;
          }
        }
}

TYPED_TEST(RotaryTest, NoThreadCountChangesABit) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const auto x = random_values<T>(400 * 128, 1);
  const auto table = random_values<A>(2 * 32, 2);
  const std::vector<int64_t> positions(400, 0);
  expect_same_for_all_thread_counts([&] {
    auto y = poisoned<T>(400 * 128);
    cpu::rotary<T>({x.data(), positions.data(), table.data(), y.data(), 400, 4, 3, 32, 32, 1,
                    RotaryPairing::half, false, false});
    std::vector<double> all;
    append(all, y);
    return all;
  });
}

TEST(Rotary, AWrongPosition) {
  const std::vector<float> x(4), table(4);
  std::vector<float> y(4);
  const std::vector<int64_t> positions{0, 1};
  EXPECT_THROW(cpu::rotary<float>({x.data(), positions.data(), table.data(), y.data(), 2, 1, 1, 2, 2, 1,
                                   RotaryPairing::half, false, false}),
               IndexError);
}

}  // namespace
}  // namespace heed
