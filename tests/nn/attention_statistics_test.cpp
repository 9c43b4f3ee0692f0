// Statistics of attention's maps, by hand on small ones.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/attention/attention_statistics.h>

#include "expect_error.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::nn {
namespace {

Tensor map_of(std::vector<double> values, const Shape& shape) {
  std::vector<float> narrow(values.begin(), values.end());
  return tensor(narrow, shape);
}

void expect_near(const Tensor& x, const Shape& shape, const std::vector<double>& want) {
  ASSERT_EQ(x.shape(), shape);
  const std::vector<double> got = x.to_vector<double>();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-7) << "element " << i;
}

// One key; two keys alike; a quarter of four; a half and two quarters.
TEST(AttentionStatistics, EntropyIsInBits) {
  for (const Device device : test::devices()) {
    const Tensor weights =
        map_of({0, 1, 0, 0, 0.5, 0, 0.5, 0, 0.25, 0.25, 0.25, 0.25, 0.5, 0.25, 0.25, 0}, {1, 4, 4})
            .to(device);
    expect_near(attention_entropy(weights), {1, 4}, {0, 1, 2, 1.5});
  }
}

TEST(AttentionStatistics, DistanceIsThatOfThePlaces) {
  const Tensor weights = map_of({1, 0, 0, 1, 0, 0, 0.5, 0.25, 0.25}, {1, 3, 3});
  expect_near(attention_distance(weights), {1, 3}, {0, 1, 1.25});
  // Of cross-attention: two queries, four keys.
  expect_near(attention_distance(map_of({0, 0, 0, 1, 0, 1, 0, 0}, {2, 4})), {2}, {3, 0});
}

TEST(AttentionStatistics, PatternsAreLines) {
  const auto cells = [](const Tensor& pattern) { return pattern.to(DType::i64).to_vector<int64_t>(); };
  EXPECT_EQ(cells(diagonal_pattern(3, 3, -1)), (std::vector<int64_t>{0, 0, 0, 1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(cells(diagonal_pattern(2, 4, 2)), (std::vector<int64_t>{0, 0, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(cells(mirror_pattern(3, 3, 3)), (std::vector<int64_t>{0, 0, 0, 0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(cells(key_pattern(2, 3, 2)), (std::vector<int64_t>{0, 0, 1, 0, 0, 1}));
}

// The first row has no token before it, and does not count.
TEST(AttentionStatistics, ShareIsOfTheRowsWithAKey) {
  const Tensor weights = map_of({1, 0, 0, 0.75, 0.25, 0, 0, 0.25, 0.75,  //
                                 1, 0, 0, 0, 1, 0, 0, 0, 1},
                                {2, 3, 3});
  expect_near(attention_share(weights, diagonal_pattern(3, 3, -1)), {2}, {0.5, 0});
  expect_near(attention_share(weights, diagonal_pattern(3, 3, 0)), {2}, {2.0 / 3, 1});
  EXPECT_TRUE(std::isnan(attention_share(weights, diagonal_pattern(3, 3, 5)).to_vector<double>()[0]));
  test::expect_error<ShapeError>([&] { (void)attention_share(weights, diagonal_pattern(3, 4, 0)); },
                                 {"[3, 4]", "[2, 3, 3]"});
}

// a b a b a: the second a looks at the b after the first; the last a at both.
TEST(AttentionStatistics, InductionIsTheTokenAfterAnEarlierOne) {
  const Tensor ids = tensor(std::vector<int64_t>{7, 8, 7, 8, 7,  //
                                                 7, 7, 9, 8, 6},
                            {2, 5});
  EXPECT_EQ(induction_pattern(ids).to(DType::i64).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 0, 0, 0, 0,  //
                                  0, 0, 0, 0, 0,  //
                                  0, 1, 0, 0, 0,  //
                                  0, 0, 1, 0, 0,  //
                                  0, 1, 0, 1, 0,  //
                                  0, 0, 0, 0, 0,  //
                                  0, 1, 0, 0, 0,  // the second of two alike came after the first
                                  0, 0, 0, 0, 0,  //
                                  0, 0, 0, 0, 0,  //
                                  0, 0, 0, 0, 0}));
  test::expect_error<ShapeError>([&] { (void)induction_pattern(ids.select(0, 0)); }, {"[5]"});
}

// Two sequences of two heads: in the first one row has a key, in the second both.
TEST(AttentionStatistics, ShareOfEachSequencesOwnPattern) {
  const Tensor weights = map_of({1, 0, 0.25, 0.75, 1, 0, 0, 1,  //
                                 1, 0, 0.5, 0.5, 0, 1, 1, 0},
                                {2, 2, 2, 2});
  const Tensor pattern = greater(map_of({0, 0, 0, 1, 1, 0, 1, 0}, {2, 2, 2}), 0);
  expect_near(attention_share(weights, pattern), {2, 2}, {0.75, 1, 0.75, 0.5});
  test::expect_error<ShapeError>([&] { (void)attention_share(weights.select(0, 0), pattern.slice(0, 0, 1)); },
                                 {"[1, 2, 2]", "[2, 2, 2]"});
}

// Two rows: one in which all heads agree, one in which the second looks elsewhere and the third at both.
TEST(AttentionStatistics, SimilarityIsOneMinusTheJensenShannonDivergence) {
  const Tensor weights = map_of({1, 0, 1, 0,  //
                                 1, 0, 0, 1,  //
                                 1, 0, 0.5, 0.5},
                                {1, 3, 2, 2});
  // The divergence of (1 0) from (½ ½): H(¾ ¼) - ½ · 1.
  const double half = -(0.75 * std::log2(0.75) + 0.25 * std::log2(0.25)) - 0.5;
  const double apart = 1 - 0.5, near = 1 - half / 2;
  expect_near(head_similarity(weights), {3, 3}, {1, apart, near, apart, 1, near, near, near, 1});
}

// Head 0 always looks at the place before, head 1 at the symbol 7, wherever it stands, head 2 evenly.
TEST(AttentionStatistics, PlacesAndSymbolsExplain) {
  const Tensor weights = map_of({1, 0, 1, 0, 1, 0, 1, 0, 0.5, 0.5, 0.5, 0.5,   // symbols 7 8
                                 1, 0, 1, 0, 0, 1, 0, 1, 0.5, 0.5, 0.5, 0.5},  // symbols 8 7
                                {2, 3, 2, 2});
  const Tensor ids = tensor(std::vector<int64_t>{7, 8, 8, 7}, {2, 2});
  expect_near(explained_by_place(weights), {3}, {1, 0, 0});
  expect_near(explained_by_symbols(weights, ids, ids), {3}, {0, 1, 0});
  test::expect_error<ShapeError>([&] { (void)explained_by_symbols(weights, ids, ids.slice(1, 0, 1)); },
                                 {"[2, 1]", "[2, 3, 2, 2]"});
  test::expect_error<ShapeError>([&] { (void)explained_by_place(weights.select(0, 0)); }, {"[3, 2, 2]"});
}

// What a mask hides is no place that explains: only the last row has a choice, and it goes by the symbol.
TEST(AttentionStatistics, MaskedCellsExplainNothing) {
  const Tensor weights = map_of({1, 0, 0, 0, 1, 0, 1, 0, 0,  //
                                 1, 0, 0, 1, 0, 0, 0, 1, 0},
                                {2, 1, 3, 3});
  const Tensor ids = tensor(std::vector<int64_t>{7, 8, 9, 8, 7, 9}, {2, 3});
  // Rows 1 and 2 deviate by ±½ from even ones, over two keys each (the last key is seen by none).
  expect_near(explained_by_place(weights), {1}, {0});
}

// By hand: two layers of two heads over two tokens.
TEST(AttentionStatistics, RolloutIsTheProductOfHalvesOfTheMeans) {
  const Tensor first = map_of({1, 0, 0, 1, 0, 1, 1, 0}, {2, 2, 2}),
               second = map_of({0, 1, 0, 1, 0, 1, 0, 1}, {2, 2, 2});
  // The heads' means are [[.5 .5] [.5 .5]] and [[0 1] [0 1]].
  const std::vector<float> want{0.5f, 0.5f, 0.25f, 0.75f};
  EXPECT_EQ(attention_rollout({first, second}).to_vector<float>(), want);
  test::expect_error<ShapeError>([] { (void)attention_rollout(TensorList(std::vector<Tensor>{})); },
                                 {"there are no layers"});
  test::expect_error<ShapeError>([&] { (void)attention_rollout({first, zeros({2, 3, 3})}); }, {"[2, 3, 3]"});
}

// One layer each: the encoder swaps its two tokens, the only target looks at itself and at the first source.
TEST(AttentionStatistics, RolloutThroughBothStacks) {
  const Tensor encoder = map_of({0, 1, 1, 0}, {1, 2, 2}), decoder = map_of({1}, {1, 1, 1}),
               cross = map_of({1, 0}, {1, 1, 2});
  // The source's states are half their own and half the other's token; the target's half its own.
  EXPECT_EQ(attention_rollout({encoder}, {decoder}, {cross}).to_vector<float>(),
            (std::vector<float>{0.25f, 0.25f, 0.5f}));
  const TensorList none(std::vector<Tensor>{});
  EXPECT_EQ(attention_rollout(none, {decoder, decoder}, {cross, cross}).to_vector<float>(),
            (std::vector<float>{0.75f, 0, 0.25f}));
  test::expect_error<ShapeError>([&] { (void)attention_rollout({encoder}, none, none); },
                                 {"0 self-attentions"});
  test::expect_error<ShapeError>(
      [&] {
        (void)attention_rollout({zeros({1, 3, 3})}, {decoder}, {cross});
      },
      {"3 tokens", "[1, 1, 2]"});
}

}  // namespace
}  // namespace heed::nn
