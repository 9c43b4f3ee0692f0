#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/indexing.h>

namespace heed::test {
namespace {

template <class T>
constexpr bool kFloating = !std::is_integral_v<T>;

template <class T>
using Bits =
    std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;

template <class T>
T from_bits(Bits<T> bits) {
  return std::bit_cast<T>(bits);
}

/// NaNs of both signs with several payloads, infinities, zeros of both signs, the least and the largest.
template <class T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_integral_v<T>) {
    return {Limits::min(), Limits::max(), -1, 0, 1, Limits::min() + 1, Limits::max() - 1};
  } else {
    const auto bits = [](double value) { return std::bit_cast<Bits<T>>(T(static_cast<float>(value))); };
    constexpr Bits<T> kSign = static_cast<Bits<T>>(Bits<T>{1} << (8 * sizeof(T) - 1));
    const Bits<T> infinity = bits(INFINITY);
    std::vector<T> values;
    for (const Bits<T> magnitude :
         {Bits<T>{0}, Bits<T>{1}, bits(1), static_cast<Bits<T>>(infinity - 1), infinity,
          static_cast<Bits<T>>(infinity + 1), bits(NAN), static_cast<Bits<T>>(kSign - 1)}) {
      values.push_back(from_bits<T>(magnitude));
      values.push_back(from_bits<T>(static_cast<Bits<T>>(magnitude | kSign)));
    }
    return values;
  }
}

enum class Kind { random, few, special, ascending, descending, equal, any_bits, numbers_last };
constexpr Kind kKinds[] = {Kind::random,     Kind::few,   Kind::special,  Kind::ascending,
                           Kind::descending, Kind::equal, Kind::any_bits, Kind::numbers_last};

template <class T>
std::vector<T> line_of(Kind kind, int64_t n) {
  std::mt19937_64 engine(static_cast<uint64_t>(n) * 8 + static_cast<uint64_t>(kind));
  std::normal_distribution<float> normal;
  const std::vector<T> special = special_values<T>();
  const auto number = [](int64_t value) {
    if constexpr (std::is_same_v<T, bfloat16>)
      return bfloat16(static_cast<float>(value));
    else
      return static_cast<T>(value);
  };
  std::vector<T> line;
  for (int64_t i = 0; i < n; ++i) {
    switch (kind) {
      case Kind::random:
        if constexpr (kFloating<T>)
          line.push_back(T(normal(engine)));
        else
          line.push_back(static_cast<T>(engine()));
        break;
      case Kind::few:
        line.push_back(number(static_cast<int64_t>(engine() % 5) - 2));
        break;
      case Kind::special:
        line.push_back(engine() % 3 == 0 ? number(static_cast<int64_t>(engine() % 100) - 50)
                                         : special[engine() % special.size()]);
        break;
      case Kind::ascending:
        line.push_back(number(i));
        break;
      case Kind::descending:
        line.push_back(number(n - i));
        break;
      case Kind::equal:
        line.push_back(number(7));
        break;
      case Kind::any_bits:  // NaNs among them
        line.push_back(from_bits<T>(static_cast<Bits<T>>(engine())));
        break;
      case Kind::numbers_last:
        line.push_back(i < n - n / 4 ? special.back() : number(i % 100));
        break;
    }
  }
  return line;
}

/// Whether a comes before b in an order where NaN is above everything.
template <class T>
bool before(T a, T b, bool descending) {
  if (descending) std::swap(a, b);
  return a != a ? false : b != b || a < b;
}

template <class T>
std::vector<int64_t> stable_order(const std::vector<T>& line, bool descending) {
  std::vector<int64_t> order(line.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return before(line[static_cast<size_t>(i)], line[static_cast<size_t>(j)], descending);
  });
  return order;
}

/// Lines that lie side by side, element i of each `step` elements after the last.
template <class T>
struct Sorted {
  int64_t lines, n, k, step;
  bool descending;
  std::vector<T> values = {};
  std::vector<int64_t> indices = {};

  void run(const std::vector<T>& x) {
    const int64_t line_x = step == 1 ? n : 1, line_y = step == 1 ? k : 1;
    values.assign(static_cast<size_t>(std::max(lines, step) * k), T{});
    indices.assign(values.size(), -1);
    kernels::Sort<T> args{.values = values.data(),
                          .indices = indices.data(),
                          .x = x.data(),
                          .lines = {},
                          .n = n,
                          .k = k,
                          .stride_values = step,
                          .stride_indices = step,
                          .stride_x = step,
                          .descending = descending};
    args.lines.rank = 1;
    args.lines.sizes[0] = lines;
    args.lines.strides[0][0] = args.lines.strides[1][0] = line_y;
    args.lines.strides[2][0] = line_x;
    cpu::sort(args);
  }
};

template <class T>
void expect_first(const Sorted<T>& got, const std::vector<T>& line, const std::vector<int64_t>& order,
                  Kind kind) {
  for (int64_t i = 0; i < got.k; ++i) {
    const auto at = static_cast<size_t>(i * got.step);
    const int64_t want = order[static_cast<size_t>(i)];
    ASSERT_EQ(got.indices[at], want) << "place " << i << " of the first " << got.k << " of " << got.n
                                     << ", kind " << static_cast<int>(kind)
                                     << (got.descending ? ", descending" : "");
    ASSERT_EQ(std::memcmp(&got.values[at], &line[static_cast<size_t>(want)], sizeof(T)), 0) << "place " << i;
  }
}

template <class T>
class Sort : public ::testing::Test {};
using NumberTypes = ::testing::Types<float, bfloat16, double, int64_t, int32_t>;
TYPED_TEST_SUITE(Sort, NumberTypes);

TYPED_TEST(Sort, TheFirstKAreThoseOfAStableSort) {
  using T = TypeParam;
  for (int64_t n : {1, 2, 31, 32, 33, 127, 128, 129, 255, 1025, 4099, 20000})
    for (Kind kind : kKinds) {
      const std::vector<T> line = line_of<T>(kind, n);
      for (bool descending : {false, true}) {
        const std::vector<int64_t> order = stable_order(line, descending);
        for (int64_t k : {int64_t{1}, int64_t{5}, int64_t{100}, n / 5, n - 1, n}) {
          if (k > n) continue;
          Sorted<T> got{.lines = 1, .n = n, .k = k, .step = 1, .descending = descending};
          got.run(line);
          ASSERT_NO_FATAL_FAILURE(expect_first(got, line, order, kind));
        }
      }
    }
}

TYPED_TEST(Sort, MoreThanCountersOf16BitsHold) {
  using T = TypeParam;
  for (int64_t n : {65535, 65536, 70001})
    for (Kind kind : {Kind::few, Kind::any_bits}) {
      const std::vector<T> line = line_of<T>(kind, n);
      Sorted<T> got{.lines = 1, .n = n, .k = n, .step = 1, .descending = true};
      got.run(line);
      ASSERT_NO_FATAL_FAILURE(expect_first(got, line, stable_order(line, true), kind));
    }
}

TYPED_TEST(Sort, StridedLines) {
  using T = TypeParam;
  constexpr int64_t kStep = 3;
  for (int64_t n : {1, 33, 129, 1025, 4099})
    for (int64_t k : {int64_t{1}, int64_t{5}, n}) {
      if (k > n) continue;
      std::vector<T> x(static_cast<size_t>(kStep * n)), lines[kStep];
      for (size_t c = 0; c < kStep; ++c) {
        lines[c] = line_of<T>(kKinds[c], n);
        for (size_t i = 0; i < lines[c].size(); ++i) x[i * kStep + c] = lines[c][i];
      }
      // Of the last line nothing may be written.
      Sorted<T> all{.lines = kStep - 1, .n = n, .k = k, .step = kStep, .descending = true};
      all.run(x);
      for (size_t c = 0; c + 1 < kStep; ++c) {
        Sorted<T> got = all;
        got.values.erase(got.values.begin(), got.values.begin() + static_cast<std::ptrdiff_t>(c));
        got.indices.erase(got.indices.begin(), got.indices.begin() + static_cast<std::ptrdiff_t>(c));
        ASSERT_NO_FATAL_FAILURE(expect_first(got, lines[c], stable_order(lines[c], true), kKinds[c]));
      }
      for (size_t i = kStep - 1; i < all.indices.size(); i += kStep) ASSERT_EQ(all.indices[i], -1);
    }
}

TYPED_TEST(Sort, NothingOfNothing) {
  using T = TypeParam;
  for (int64_t lines : {0, 2}) {
    Sorted<T> got{.lines = lines, .n = 0, .k = 0, .step = 1, .descending = false};
    got.run({});
    EXPECT_TRUE(got.indices.empty());
  }
  Sorted<T> none{.lines = 2, .n = 40, .k = 0, .step = 1, .descending = true};
  none.run(line_of<T>(Kind::random, 80));
  EXPECT_TRUE(none.indices.empty());
}

TEST(SortThreads, ChangeNothing) {
  constexpr int64_t kLines = 200, kN = 513;
  const std::vector<float> x = line_of<float>(Kind::special, kLines * kN);
  const int before = thread_count();
  for (int64_t k : {int64_t{3}, kN}) {
    Sorted<float> alone{.lines = kLines, .n = kN, .k = k, .step = 1, .descending = true}, together = alone;
    set_thread_count(1);
    alone.run(x);
    set_thread_count(3);
    together.run(x);
    EXPECT_EQ(alone.indices, together.indices);
  }
  set_thread_count(before);
}

}  // namespace
}  // namespace heed::test
