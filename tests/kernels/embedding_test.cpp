#include <string>

#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/embedding.h>

#include "error_bound.h"

namespace heed::test {
namespace {

/// One embedding problem; tables, ids and gradient are drawn from the sizes.
template <class T>
struct Problem {
  int64_t rows, cols, vocabulary, positions;
  double rate = 0;
  bool with_positions = true;
  float scale = 1.5f;
  int64_t padding_id = kNoToken;
  std::vector<int64_t> ids = {}, position_ids = {};
  std::vector<T> weight = {}, position = {}, gy = {};
  Dropout dropout = {};

  void draw() {
    std::mt19937 engine(21);
    for (int64_t r = 0; r < rows; ++r) {
      ids.push_back(engine() % 6 == 0 ? kNoToken : int64_t(engine() % uint32_t(vocabulary)));
      position_ids.push_back(ids[r] == kNoToken ? 1 << 20 : int64_t(engine() % uint32_t(positions)));
    }
    weight = random_values<T>(vocabulary * cols, 22);
    position = random_values<T>(positions * cols, 23);
    gy = random_values<T>(rows * cols, 24);
    dropout = make_dropout(rate, {1234567890123ull, nullptr, 77});
  }

  bool kept(int64_t element) const {
    return dropout_bits(dropout.rng, element / 8).bits(element % 8) >= dropout.threshold;
  }

  template <class Store, class Acc>
  std::vector<Store> plain_forward() const {
    std::vector<Store> y(rows * cols, Store(0.0f));
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t r = i / cols, c = i % cols;
      if (ids[r] == kNoToken || !kept(i)) continue;
      Acc value = Acc(weight[ids[r] * cols + c]) * Acc(scale);
      if (with_positions) value += Acc(position[position_ids[r] * cols + c]);
      y[i] = Store(value * (dropout.active() ? Acc(dropout.scale) : Acc(1)));
    }
    return y;
  }

  /// The gradient of the table that `index` points into.
  template <class Store>
  std::vector<Store> plain_gradient(const std::vector<int64_t>& index, int64_t table_rows, int64_t skip,
                                    float factor) const {
    std::vector<Store> g(table_rows * cols, Store(0));
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t r = i / cols, c = i % cols;
      if (ids[r] == kNoToken || index[r] == skip || !kept(i)) continue;
      g[index[r] * cols + c] += Store(gy[i]) * Store(dropout.active() ? dropout.scale : 1.0f) * Store(factor);
    }
    return g;
  }

  std::vector<T> forward() const {
    std::vector<T> y(rows * cols, quiet_nan<T>());
    cpu::embedding_forward<T>({.ids = ids.data(),
                               .weight = weight.data(),
                               .position = with_positions ? position.data() : nullptr,
                               .position_ids = with_positions ? position_ids.data() : nullptr,
                               .dropout = dropout,
                               .scale = scale,
                               .y = y.data(),
                               .rows = rows,
                               .cols = cols,
                               .vocabulary = vocabulary,
                               .positions = positions});
    return y;
  }

  void backward(std::vector<accumulator_t<T>>* gweight, std::vector<accumulator_t<T>>* gposition,
                bool accumulate) const {
    cpu::embedding_backward<T>({.gy = gy.data(),
                                .ids = ids.data(),
                                .position_ids = with_positions ? position_ids.data() : nullptr,
                                .dropout = dropout,
                                .scale = scale,
                                .padding_id = padding_id,
                                .gweight = gweight ? gweight->data() : nullptr,
                                .gposition = gposition ? gposition->data() : nullptr,
                                .accumulate_weight = accumulate,
                                .accumulate_position = accumulate,
                                .rows = rows,
                                .cols = cols,
                                .vocabulary = vocabulary,
                                .positions = positions});
  }
};

template <class T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, FloatingTypes);

TYPED_TEST(Embedding, MatchesReference) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  using R = reference_t<T>;
  for (const int64_t cols : {1, 3, 7, 8, 9, 16, 31, 33, 64, 127, 129, 513, 1025})
    for (const double rate : {0.0, 0.3})
      for (const bool with_positions : {true, false}) {
        Problem<T> p{.rows = cols > 100 ? 40 : 200,
                     .cols = cols,
                     .vocabulary = 13,
                     .positions = 9,
                     .rate = rate,
                     .with_positions = with_positions,
                     .padding_id = rate > 0 ? 4 : kNoToken};
        p.draw();
        const auto y = p.forward();
        expect_within<T>(y, p.template plain_forward<R, R>(), p.template plain_forward<T, A>(), 2, "y");
        for (int64_t i = 0; i < p.rows * cols; ++i) {
          if (p.ids[i / cols] == kNoToken) {
            ASSERT_EQ(double(y[i]), 0);
          }
        }

        const A nan = std::numeric_limits<A>::quiet_NaN();
        std::vector<A> gweight(13 * cols, nan), gposition(9 * cols, nan);
        p.backward(&gweight, with_positions ? &gposition : nullptr, false);
        expect_within<A>(gweight, p.template plain_gradient<R>(p.ids, 13, p.padding_id, p.scale),
                         p.template plain_gradient<A>(p.ids, 13, p.padding_id, p.scale), 3, "gweight");
        if (with_positions) {
          expect_within<A>(gposition, p.template plain_gradient<R>(p.position_ids, 9, kNoToken, 1),
                           p.template plain_gradient<A>(p.position_ids, 9, kNoToken, 1), 3, "gposition");
        }

        std::vector<A> only_weight(13 * cols, nan), only_position(9 * cols, nan);
        p.backward(&only_weight, nullptr, false);
        EXPECT_EQ(only_weight, gweight);
        if (with_positions) {
          p.backward(nullptr, &only_position, false);
          EXPECT_EQ(only_position, gposition);
        }
        std::vector<A> added(13 * cols, A(2)), untouched(9 * cols, A(2));
        p.backward(&added, with_positions ? &untouched : nullptr, true);
        for (int64_t i = 0; i < 13 * cols; ++i) ASSERT_EQ(added[i], gweight[i] + A(2));
        for (int64_t i = 0; with_positions && i < 9 * cols; ++i) ASSERT_EQ(untouched[i], gposition[i] + A(2));
      }
}

TEST(Embedding, SumsInTheOrderOfTheRows) {
  Problem<float> p{.rows = 5000, .cols = 3, .vocabulary = 7, .positions = 4, .rate = 0.1, .scale = 1};
  p.draw();
  std::vector<float> gweight(7 * 3), gposition(4 * 3);
  p.backward(&gweight, &gposition, false);
  EXPECT_EQ(gweight, p.plain_gradient<float>(p.ids, 7, kNoToken, 1));  // the same bits, so the same order
  EXPECT_EQ(gposition, p.plain_gradient<float>(p.position_ids, 4, kNoToken, 1));
}

TEST(Embedding, PaddingRowKeepsWhatItHasAndIsZeroOtherwise) {
  Problem<float> p{.rows = 100, .cols = 5, .vocabulary = 3, .positions = 2, .padding_id = 1};
  p.draw();
  std::vector<float> gweight(15, 3.0f);
  p.backward(&gweight, nullptr, true);
  for (int c = 0; c < 5; ++c) EXPECT_EQ(gweight[5 + c], 3);
  p.backward(&gweight, nullptr, false);
  for (int c = 0; c < 5; ++c) EXPECT_EQ(gweight[5 + c], 0);
}

TEST(Embedding, BadIdsAreNamedAndNothingIsWritten) {
  for (const bool bad_position : {false, true})
    for (const int64_t bad : {int64_t{-2}, int64_t{13}, int64_t{1} << 40}) {
      Problem<float> p{.rows = 20, .cols = 4, .vocabulary = 13, .positions = 13};
      p.draw();
      p.ids[17] = bad_position ? 0 : bad;
      p.position_ids[17] = bad_position ? bad : 0;
      std::vector<float> y(80, 42.0f), gweight(13 * 4, 42.0f);
      const auto expect_index_error = [&](auto call) {
        try {
          call();
          FAIL() << bad << " was accepted";
        } catch (const IndexError& error) {
          const std::string text = error.what();
          EXPECT_NE(text.find(std::to_string(bad)), std::string::npos) << text;
          EXPECT_NE(text.find("row 17"), std::string::npos) << text;
        }
      };
      expect_index_error([&] {
        cpu::embedding_forward<float>({.ids = p.ids.data(),
                                       .weight = p.weight.data(),
                                       .position = p.position.data(),
                                       .position_ids = p.position_ids.data(),
                                       .dropout = p.dropout,
                                       .scale = 1,
                                       .y = y.data(),
                                       .rows = 20,
                                       .cols = 4,
                                       .vocabulary = 13,
                                       .positions = 13});
      });
      expect_index_error([&] { p.backward(&gweight, nullptr, false); });
      EXPECT_EQ(y, std::vector<float>(80, 42.0f));
      EXPECT_EQ(gweight, std::vector<float>(13 * 4, 42.0f));
    }
}

TEST(Embedding, NoRows) {
  Problem<float> p{.rows = 0, .cols = 4, .vocabulary = 3, .positions = 2};
  std::vector<float> gweight(12, 42.0f);
  EXPECT_TRUE(p.forward().empty());
  p.backward(&gweight, nullptr, false);
  EXPECT_EQ(gweight, std::vector<float>(12, 0.0f));
}

TEST(Embedding, ThreadCountDoesNotMatter) {
  Problem<float> p{.rows = 3000, .cols = 200, .vocabulary = 1000, .positions = 50, .rate = 0.1};
  p.draw();
  const int before = thread_count();
  set_thread_count(1);
  const auto y = p.forward();
  std::vector<float> gweight(1000 * 200), gposition(50 * 200);
  p.backward(&gweight, &gposition, false);
  for (const int threads : {2, 4}) {
    set_thread_count(threads);
    EXPECT_EQ(p.forward(), y);
    std::vector<float> weight_again(gweight.size()), position_again(gposition.size());
    p.backward(&weight_again, &position_again, false);
    EXPECT_EQ(weight_again, gweight);
    EXPECT_EQ(position_again, gposition);
  }
  set_thread_count(before);
}

}  // namespace
}  // namespace heed::test
