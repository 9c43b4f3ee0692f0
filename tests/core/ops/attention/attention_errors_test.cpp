#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/attention.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

const Segments kSegments = Segments::packed(std::vector<int32_t>{2, 3});

// [5, 8] operands: 2 heads of 4.
Tensor x() { return zeros({5, 8}); }

void attend(const AttentionOptions& options) { attention(x(), x(), x(), kSegments, options); }

TEST(AttentionErrors, Heads) {
  expect_error<ConfigError>([] { attend({.heads = 3}); },
                            "attention: q has 8 columns, which do not divide into 3 heads");
  expect_error<ConfigError>([] { attend({.heads = 0}); }, "attention: heads is 0; it must be positive");
  expect_error<ConfigError>([] { attend({.heads = 4, .key_heads = 3}); },
                            "attention: key_heads is 3; it must divide the 4 heads");
  expect_error<ConfigError>([] { attend({.heads = 2, .key_heads = -1}); }, "key_heads is -1");
}

TEST(AttentionErrors, FusedColumns) {
  expect_error<ConfigError>(
      [] {
        attention_qkv(zeros({5, 8}), kSegments, {.heads = 1});
      },
      "attention_qkv: qkv has 8 columns, which do not divide into 1 heads of q and 1 each of k and v");
  expect_error<ShapeError>(
      [] {
        attention_kv(x(), zeros({5, 15}), kSegments, {.heads = 2});
      },
      "attention_kv: kv is [5, 15], expected k and v of 2 heads of 4 columns as q has, 16");
}

TEST(AttentionErrors, Shapes) {
  expect_error<ShapeError>(
      [] {
        attention(x(), zeros({5, 4}), zeros({5, 4}), kSegments, {.heads = 2});
      },
      "attention: k is [5, 4], expected 2 heads of 4 columns as q has, 8 in all");
  expect_error<ShapeError>(
      [] {
        attention(x(), x(), zeros({6, 8}), kSegments, {.heads = 2});
      },
      "attention: k is [5, 8], v is [6, 8]");
  expect_error<ShapeError>(
      [] {
        attention(zeros({4, 8}), x(), x(), kSegments, {.heads = 2});
      },
      "attention: the segments name query rows up to 5, but [4, 8] has 4 rows");
  expect_error<ShapeError>(
      [] {
        attention(x(), zeros({4, 8}), zeros({4, 8}), kSegments, {.heads = 2});
      },
      "attention: the segments name key rows up to 5, but [4, 8] has 4 rows");
  EXPECT_THROW(attention(zeros({}), x(), x(), kSegments, {}), ShapeError);
}

TEST(AttentionErrors, DTypes) {
  EXPECT_THROW(attention(x(), x().to(DType::f64), x(), kSegments, {.heads = 2}), DTypeError);
  EXPECT_THROW(attention(x(), x(), x().to(DType::bf16), kSegments, {.heads = 2}), DTypeError);
  EXPECT_THROW(attention_qkv(zeros({5, 6}, {.dtype = DType::i64}), kSegments, {}), DTypeError);
}

TEST(AttentionErrors, Rules) {
  expect_error<ConfigError>([] { attend({.heads = 2, .visibility = {.window_left = -2}}); },
                            "attention: the window is -2 to the left and -1 to the right");
  expect_error<ConfigError>([] { attend({.heads = 2, .visibility = {.dilation = 0}}); },
                            "attention: dilation is 0; it must be at least 1");
  expect_error<ConfigError>([] { attend({.heads = 2, .visibility = {.global_tokens = -1}}); },
                            "attention: global_tokens is -1");
  expect_error<ConfigError>([] { attend({.heads = 2, .scale = NAN}); }, "attention: scale is nan");
}

TEST(AttentionErrors, PatternsThatAreTooSmall) {
  const auto blocks = [](int64_t queries, int64_t keys) {
    return BlockPattern(ones({queries, keys}).to(DType::boolean));
  };
  const auto attend_long = [&](const BlockPattern& pattern, Causal causal) {
    const Segments segments = Segments::packed(std::vector<int32_t>{3}, std::vector<int32_t>{130});
    attention(zeros({3, 8}), zeros({130, 8}), zeros({130, 8}), segments,
              {.visibility = {.causal = causal}, .blocks = pattern});
  };
  expect_error<ShapeError>(
      [&] { attend_long(blocks(1, 2), Causal::none); },
      "attention: a pattern of 1 by 2 blocks of 64 is too small for 3 positions of queries and 130 keys");
  expect_error<ShapeError>([&] { attend_long(blocks(2, 3), Causal::bottom_right); },
                           "is too small for 130 positions of queries and 130 keys");
  attend_long(blocks(1, 3), Causal::none);
  attend_long(blocks(3, 3), Causal::bottom_right);
  attend_long({}, Causal::bottom_right);
}

TEST(AttentionErrors, MasksOfTheWrongKind) {
  expect_error<DTypeError>(
      [] {
        Mask::allowed(ones({5, 5}));
      },
      "Mask::allowed: the mask is f32; it must be bool");
  expect_error<DTypeError>(
      [] {
        Mask::blocked(ones({5, 5}, {.dtype = DType::i64}));
      },
      "Mask::blocked: the mask is i64");
  expect_error<DTypeError>(
      [] {
        Mask::added(ones({5, 5}, {.dtype = DType::boolean}));
      },
      "Mask::added: needs a floating-point tensor");
  expect_error<ConfigError>([] { Mask::added(ones({2, 2})); }, "a boolean mask in disguise");
  expect_error<ConfigError>(
      [] {
        Mask::added(tensor<double>({0, 1, 1, 0}));
      },
      "say Mask::allowed where 1 means visible, Mask::blocked where it means hidden");
  EXPECT_TRUE(Mask::added(tensor<float>({0, 1, -INFINITY})).bias().defined());
  EXPECT_TRUE(Mask::added(zeros({2})).bias().defined());
  EXPECT_TRUE(Mask::added(ones({2}).set_requires_grad()).bias().defined());  // it learns, so it is a bias
}

TEST(AttentionErrors, BlockedIsTheOppositeOfAllowed) {
  const Tensor hidden = tensor<int64_t>({0, 1, 0}).to(DType::boolean);
  EXPECT_EQ(Mask::blocked(hidden).visible().to_vector<bool>(), (std::vector<bool>{true, false, true}));
}

TEST(AttentionErrors, MaskShapes) {
  const auto masked = [](const Shape& shape) {
    attend({.heads = 2, .mask = Mask::allowed(zeros(shape, {.dtype = DType::boolean}))});
  };
  for (const Shape& shape :
       {Shape{2, 3}, Shape{3, 2}, Shape{3, 3, 3}, Shape{3, 2, 3, 3}, Shape{1, 2, 2, 3, 3}, Shape{0}})
    expect_error<ShapeError>(
        [&] { masked(shape); },
        concat("attention: the mask is ", shape,
               ", which does not broadcast to [sequences, heads, queries, keys] = [2, 2, 3, 3]"));
  expect_error<ShapeError>(
      [] {
        attend({.heads = 2, .mask = Mask::added(zeros({4, 1, 1, 1}))});
      },
      "attention: the bias is [4, 1, 1, 1]");
  masked({});
  masked({4, 4});
}

TEST(AttentionErrors, BiasesAndTables) {
  expect_error<DTypeError>(
      [] {
        attend({.heads = 2, .mask = Mask::added(zeros({3, 3}, {.dtype = DType::f64}))});
      },
      "attention: the bias is f64; it must be f32");
  expect_error<ShapeError>([] { attend({.heads = 2, .alibi_slopes = zeros({3})}); },
                           "attention: alibi_slopes is [3], expected [2]");
  expect_error<DTypeError>([] { attend({.heads = 2, .alibi_slopes = zeros({2}, {.dtype = DType::bf16})}); },
                           "attention: alibi_slopes is bf16; it must be f32");
  expect_error<AutogradError>([] { attend({.heads = 2, .alibi_slopes = zeros({2}).set_requires_grad()}); },
                              "alibi_slopes require a gradient");
  for (const Shape& shape : {Shape{2, 4}, Shape{3, 5}, Shape{5}, Shape{2, 0}})
    expect_error<ShapeError>([&] { attend({.heads = 2, .relative = zeros(shape)}); },
                             concat("attention: relative is ", shape, ", expected [2, 2 * limit + 1]"));
  EXPECT_THROW(attend({.heads = 2, .relative = zeros({2, 3}, {.dtype = DType::f64})}), DTypeError);
}

TEST(AttentionErrors, DropoutAndTheGenerator) {
  Generator generator(1);
  for (double p : {-0.5, 1.0, static_cast<double>(NAN)})
    expect_error<ConfigError>([&] { attend({.heads = 2, .dropout = p, .generator = &generator}); },
                              concat("attention: the dropout rate is ", p));
  EXPECT_THROW(attend({.heads = 3, .dropout = 0.5, .generator = &generator}), ConfigError);
  attend({.heads = 2, .dropout = 0, .generator = &generator});
  EXPECT_EQ(generator.offset(), 0u);
  attend({.heads = 2, .dropout = 0.5, .generator = &generator});
  EXPECT_EQ(generator.offset(), 1u);
}

}  // namespace
}  // namespace heed::test
