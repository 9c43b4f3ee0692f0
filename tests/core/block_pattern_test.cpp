// Patterns of blocks: their parts, their bits, and attention by them against attention with the same mask.
#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/core/block_pattern.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>

#include "each_device.h"
#include "expect_error.h"
#include "op_check.h"

namespace heed::test {
namespace {

std::vector<int64_t> numbers(const Tensor& blocks) { return blocks.to(DType::i64).to_vector<int64_t>(); }

TEST(BlockPattern, IsWhatTheMatrixSays) {
  const Tensor seen = greater(rand({37, 70}), full({37, 70}, 0.7));
  for (const Device device : devices()) {
    const BlockPattern pattern(seen.to(device));
    EXPECT_TRUE(pattern.defined());
    EXPECT_EQ(pattern.query_blocks(), 37);
    EXPECT_EQ(pattern.key_blocks(), 70);
    const BlockPatternView view = pattern.view(kCpu);
    for (int64_t i = 0; i < 37; ++i)
      for (int64_t j = 0; j < 70; ++j) {
        const bool is_seen = seen.data<bool>()[i * 70 + j];
        ASSERT_EQ(view.of_queries[i * 3 + j / 32] >> (j % 32) & 1, is_seen) << i << ' ' << j;
        ASSERT_EQ(view.of_keys[j * 2 + i / 32] >> (i % 32) & 1, is_seen) << i << ' ' << j;
      }
  }
  EXPECT_FALSE(BlockPattern().defined());
  EXPECT_FALSE(BlockPattern().view(kCpu).given());
  EXPECT_EQ(BlockPattern(empty({0, 0}, {.dtype = DType::boolean})).query_blocks(), 0);
}

TEST(BlockPattern, RefusesWhatIsNoMatrixOfBool) {
  expect_error<DTypeError>([] { BlockPattern(ones({2, 2})); }, {"BlockPattern: the blocks are f32"});
  expect_error<ShapeError>([] { BlockPattern(ones({2}).to(DType::boolean)); },
                           {"BlockPattern: the blocks are [2], expected [query blocks, key blocks]"});
}

TEST(BlockPattern, VisibleBlocksHoldAVisiblePair) {
  const int64_t length = 300;
  for (const Visibility& rule :
       {Visibility{}, Visibility{.causal = Causal::top_left},
        Visibility{.window_left = 64, .window_right = 0},
        Visibility{.causal = Causal::top_left, .window_left = 10, .global_tokens = 70},
        Visibility{.window_left = 290, .window_right = 290, .dilation = 145},
        Visibility{.causal = Causal::top_left, .window_left = 290, .dilation = 200, .global_tokens = 2}}) {
    const Tensor seen = visible_blocks(rule, length);
    ASSERT_EQ(seen.shape(), (Shape{5, 5}));
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t j = 0; j < 5; ++j) {
        bool some = false;
        for (int64_t q = i * 64; q < std::min<int64_t>(i * 64 + 64, length); ++q)
          for (int64_t k = j * 64; k < std::min<int64_t>(j * 64 + 64, length); ++k)
            some = some || rule.visible(q, k, length, length);
        ASSERT_EQ(seen.data<bool>()[i * 5 + j], some) << i << ' ' << j << ' ' << rule.dilation;
      }
  }
  EXPECT_EQ(visible_blocks({}, 0).shape(), (Shape{0, 0}));
  EXPECT_THROW(visible_blocks({}, -1), ConfigError);
}

TEST(BlockPattern, RandomBlocksAreAsManyAsAskedFor) {
  Generator generator(7);
  for (const bool causal : {false, true}) {
    const Tensor seen = random_blocks(12, 3, causal, generator);
    for (int64_t i = 0; i < 12; ++i) {
      int64_t count = 0;
      for (int64_t j = 0; j < 12; ++j) {
        count += seen.data<bool>()[i * 12 + j];
        EXPECT_FALSE(causal && j > i && seen.data<bool>()[i * 12 + j]);
      }
      EXPECT_EQ(count, causal ? std::min<int64_t>(i + 1, 3) : 3);
    }
  }
  Generator a(5), b(5), other(6);
  EXPECT_EQ(numbers(random_blocks(9, 2, true, a)), numbers(random_blocks(9, 2, true, b)));
  EXPECT_NE(numbers(random_blocks(9, 2, true, a)), numbers(random_blocks(9, 2, true, other)));
  EXPECT_THROW(random_blocks(3, -1, false), ConfigError);
}

TEST(BlockPattern, StridedBlocksAreDiagonals) {
  EXPECT_EQ(numbers(strided_blocks(4, 2)),
            (std::vector<int64_t>{1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1}));
  EXPECT_THROW(strided_blocks(4, 0), ConfigError);
}

struct Gradients {
  Tensor y, gqkv;
};

Gradients attend(const Tensor& from, const Tensor& gy, const Segments& segments,
                 const AttentionOptions& options) {
  const Tensor qkv = from.clone().set_requires_grad();
  const Tensor y = attention_qkv(qkv, segments, options);
  y.backward(gy);
  return {y.detach(), qkv.grad()};
}

// BigBird's, Longformer's and the Sparse Transformer's patterns, with sequences of several lengths: the same
// as with a mask of every pair, forward and backward.
TEST(BlockPattern, AttendsAsTheSameMaskDoes) {
  constexpr int64_t kLength = 200;
  const std::vector<int32_t> lengths{200, 5, 70};
  const Segments segments = Segments::packed(lengths);
  const int64_t blocks = pattern_blocks(kLength);
  Generator generator(3);
  const Tensor patterns[] = {
      logical_or(visible_blocks({.window_left = 64, .window_right = 64, .global_tokens = 64}, kLength),
                 random_blocks(blocks, 1, false, generator)),
      visible_blocks({.window_left = 200, .window_right = 200, .dilation = 100, .global_tokens = 1}, kLength),
      logical_or(visible_blocks({.window_left = 20}, kLength), strided_blocks(blocks, 3))};
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
      for (const Tensor& seen : patterns)
        for (const Causal causal : {Causal::none, Causal::top_left}) {
          if (device.is_cuda() && dtype == DType::f64) continue;
          const Visibility rule{.causal = causal};
          const Tensor mask = empty({kLength, kLength}, {.dtype = DType::boolean});
          for (int64_t q = 0; q < kLength; ++q)
            for (int64_t k = 0; k < kLength; ++k)
              mask.data<bool>()[q * kLength + k] = seen.data<bool>()[q / 64 * blocks + k / 64];
          const Tensor qkv = normal({275, 3 * 32}, 1).to(dtype).to(device),
                       gy = normal({275, 32}, 2).to(dtype).to(device);
          const Gradients sparse = attend(qkv, gy, segments,
                                          {.heads = 2, .visibility = rule, .blocks = BlockPattern(seen)}),
                          dense = attend(
                              qkv, gy, segments,
                              {.heads = 2, .visibility = rule, .mask = Mask::allowed(mask.to(device))});
          const double bound = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-5 : 6e-2;
          EXPECT_LT(max_difference(sparse.y, dense.y), bound) << device << dtype;
          EXPECT_LT(max_difference(sparse.gqkv, dense.gqkv), bound * 2) << device << dtype;
        }
}

// The weights are those of the pattern too, and the rows that see nothing are counted.
TEST(BlockPattern, RecordsShowIt) {
  const Tensor seen = tensor(std::vector<int64_t>{1, 0, 0, 0, 1, 1, 0, 0, 0}, {3, 3}).to(DType::boolean);
  for (const Device device : devices()) {
    const Tensor qkv = normal({150, 3 * 16}, 1).to(DType::f32).to(device);
    const AttentionRecord record;
    attention_qkv(qkv, Segments::dense(1, 150), {.heads = 2, .blocks = BlockPattern(seen), .name = "a"});
    EXPECT_EQ(record.fully_masked_rows("a"), 2 * (150 - 128));
    const Tensor weights = record.weights("a", 0, 1, 50, 70).to(kCpu);  // across two blocks of queries
    for (int64_t q = 0; q < 70; ++q)
      for (int64_t k = 0; k < 150; ++k) {
        const bool is_seen = seen.data<bool>()[(q + 50) / 64 * 3 + k / 64];
        ASSERT_EQ(weights.data<float>()[q * 150 + k] > 0, is_seen) << q << ' ' << k;
      }
  }
}

}  // namespace
}  // namespace heed::test
