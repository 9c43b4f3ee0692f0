#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include <heed/core/creation.h>
#include <heed/nn/models/transformer.h>

#include "expect_error.h"

namespace heed::test {
namespace {

// The numbers that the code of the paper (arXiv 2108.12409) gives.
TEST(Alibi, SlopesAreThoseOfThePaper) {
  const auto slopes = [](int64_t heads) { return nn::alibi_slopes(heads).to_vector<float>(); };
  EXPECT_EQ(slopes(1), (std::vector<float>{0x1p-8f}));
  EXPECT_EQ(slopes(2), (std::vector<float>{0x1p-4f, 0x1p-8f}));
  EXPECT_EQ(slopes(3), (std::vector<float>{0x1p-4f, 0x1p-8f, 0x1p-2f}));
  EXPECT_EQ(slopes(6), (std::vector<float>{0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f, 0x1p-1f, 0x1p-3f}));
  EXPECT_EQ(slopes(8),
            (std::vector<float>{0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f}));
  EXPECT_EQ(slopes(12),
            (std::vector<float>{0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f,
                                0.7071067812f, 0.3535533906f, 0.1767766953f, 0.08838834764f}));
  expect_error<ConfigError>([] { nn::alibi_slopes(0); }, {"heads is 0"});
}

// The bucket, and how many distances from -200 to 200 in a row have it, as transformers' T5 counts them.
using Runs = std::vector<std::pair<int64_t, int64_t>>;

Runs runs_of(const Tensor& buckets) {
  Runs runs;
  for (const int64_t bucket : buckets.to_vector<int64_t>()) {
    if (runs.empty() || runs.back().first != bucket) runs.emplace_back(bucket, 0);
    ++runs.back().second;
  }
  return runs;
}

TEST(T5, BucketsAreThoseOfTransformers) {
  // Distances beyond the limit are the limit's: 72 on each side less than at 200.
  EXPECT_EQ(runs_of(nn::t5_buckets(128, 32, false)),
            (Runs{{15, 38}, {14, 27}, {13, 18}, {12, 14}, {11, 9},  {10, 7},  {9, 4},  {8, 4},
                  {7, 1},   {6, 1},   {5, 1},   {4, 1},   {3, 1},   {2, 1},   {1, 1},  {0, 1},
                  {17, 1},  {18, 1},  {19, 1},  {20, 1},  {21, 1},  {22, 1},  {23, 1}, {24, 4},
                  {25, 4},  {26, 7},  {27, 9},  {28, 14}, {29, 18}, {30, 27}, {31, 38}}));
  EXPECT_EQ(runs_of(nn::t5_buckets(128, 32, true)),
            (Runs{{31, 16}, {30, 14}, {29, 12}, {28, 10}, {27, 10}, {26, 8}, {25, 7}, {24, 6},
                  {23, 6},  {22, 5},  {21, 4},  {20, 4},  {19, 3},  {18, 3}, {17, 2}, {16, 3},
                  {15, 1},  {14, 1},  {13, 1},  {12, 1},  {11, 1},  {10, 1}, {9, 1},  {8, 1},
                  {7, 1},   {6, 1},   {5, 1},   {4, 1},   {3, 1},   {2, 1},  {1, 1},  {0, 129}}));
  EXPECT_EQ(runs_of(nn::t5_buckets(20, 10, false)),
            (Runs{{4, 11}, {3, 5}, {2, 3}, {1, 1}, {0, 1}, {6, 1}, {7, 3}, {8, 5}, {9, 11}}));
  EXPECT_EQ(runs_of(nn::t5_buckets(100, 7, true)),
            (Runs{{6, 59}, {5, 24}, {4, 10}, {3, 5}, {2, 1}, {1, 1}, {0, 101}}));
  expect_error<ConfigError>([] { nn::t5_buckets(128, 3, false); }, {"3 buckets are too few; 4"});
  expect_error<ConfigError>([] { nn::t5_buckets(16, 32, true); }, {"limit 16 must exceed 16"});
}

// A layer with T5's biases is one with a table of all distances that holds each bucket's bias.
TEST(T5, AttentionAddsTheBiasOfTheBucket) {
  using namespace nn;
  const Segments segments = Segments::packed(std::vector<int32_t>{9, 1, 12});
  for (const bool causal : {false, true}) {
    Generator generator(3);
    const MultiHeadAttention t5(
        8, 2,
        {.position = PositionKind::t5, .relative_limit = 9, .relative_buckets = 8, .causal_buckets = causal},
        generator);
    ASSERT_EQ(t5.relative_bias.shape(), (Shape{8, 2}));
    generator.reset(3);
    const MultiHeadAttention table(8, 2, {.position = PositionKind::relative, .relative_limit = 9},
                                   generator);
    const NoGrad no_grad;
    normal_(t5.relative_bias, 0, 2, generator);
    const auto buckets = t5_buckets(9, 8, causal).to_vector<int64_t>();
    for (int64_t head = 0; head < 2; ++head)
      for (int64_t d = 0; d < 19; ++d)
        table.relative_bias.data<float>()[head * 19 + d] =
            t5.relative_bias.data<float>()[buckets[static_cast<size_t>(d)] * 2 + head];
    const Tensor x = randn({22, 8}, {}, generator);
    const AttentionCall call{.visibility = {causal ? Causal::top_left : Causal::none}};
    EXPECT_EQ(t5.self(x, segments, call).to_vector<float>(),
              table.self(x, segments, call).to_vector<float>());
  }
}

TEST(RandomPositions, RiseWithinAWindowOfAnyWidthAndPlace) {
  constexpr int64_t kRange = 7, kCount = 3, kDraws = 20'000;
  std::vector<int64_t> count(kRange, 0), position(kCount);
  std::map<std::vector<int64_t>, int64_t> seen;
  for (int64_t i = 0; i < kDraws; ++i) {
    nn::draw_positions(position, kRange, {5, nullptr, 9}, i);
    ASSERT_TRUE(0 <= position[0] && position[0] < position[1] && position[1] < position[2] &&
                position[2] < kRange);
    for (const int64_t p : position) ++count[static_cast<size_t>(p)];
    ++seen[position];
  }
  EXPECT_EQ(seen.size(), 35u);  // 7 over 3: any choice can come
  // A position is drawn with probability count / width from each window that holds it.
  for (int64_t p = 0; p < kRange; ++p) {
    double expected = 0;
    for (int64_t width = kCount; width <= kRange; ++width)
      for (int64_t begin = 0; begin + width <= kRange; ++begin)
        if (begin <= p && p < begin + width)
          expected += 1.0 / (kRange - kCount + 1) / static_cast<double>(kRange - width + 1) * kCount /
                      static_cast<double>(width);
    const double deviation = std::sqrt(kDraws * expected * (1 - expected));
    EXPECT_NEAR(static_cast<double>(count[static_cast<size_t>(p)]), kDraws * expected, 5 * deviation) << p;
  }
  EXPECT_GT((seen[{0, 1, 2}]), kDraws / 5 / 5);  // the narrowest window at its first place, at least

  std::vector<int64_t> again(kCount);
  nn::draw_positions(again, kRange, {5, nullptr, 9}, kDraws - 1);
  EXPECT_EQ(again, position);
  std::vector<int64_t> all(kRange);
  nn::draw_positions(all, kRange, {1, nullptr, 0});
  EXPECT_EQ(all, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  expect_error<ShapeError>(
      [&] {
        nn::draw_positions(all, 6, {1, nullptr, 0});
      },
      {"7 different positions below 6"});
}

// A model that is given random positions answers as one whose tokens stand there.
TEST(RandomPositions, AreWhereTheModelTakesTheTokensToStand) {
  using namespace nn;
  for (const PositionKind kind : {PositionKind::sinusoidal, PositionKind::learned, PositionKind::rotary}) {
    TransformerConfig config;
    config.source_vocabulary = config.target_vocabulary = 9;
    config.d_model = 8, config.heads = 2, config.d_ff = 12;
    config.encoder_layers = config.decoder_layers = 1;
    config.position = kind;
    config.max_length = 40;
    Generator generator(4);
    Transformer model(config, generator);
    model.eval();
    const NoGrad no_grad;
    const Tokens plain = Tokens::packed({{4, 3, 5}, {6, 7}});
    const Tokens drawn = with_random_positions(plain, 40, generator);
    EXPECT_EQ(drawn.range, 40);
    const auto at = drawn.positions.to_vector<int64_t>();
    EXPECT_TRUE(at[0] < at[1] && at[1] < at[2] && at[3] < at[4]);
    Tokens spread = plain;
    spread.positions = tensor<int64_t>({at[0], at[1], at[2], at[3], at[4]});
    spread.range = 40;
    EXPECT_EQ(model.encode(drawn).to_vector<float>(), model.encode(spread).to_vector<float>());
    EXPECT_NE(model.encode(drawn).to_vector<float>(), model.encode(plain).to_vector<float>());
    if (kind == PositionKind::learned)
      expect_error<ShapeError>([&] { model.encode(with_random_positions(plain, 41)); },
                               {"41 tokens", "40 learned positions"});
  }
}

}  // namespace
}  // namespace heed::test
