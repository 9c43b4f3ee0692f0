#include <cmath>
#include <cstring>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/attention.h>
#include <heed/kernels/cpu/gemm/gemm_path.h>

#include "attention_problem.h"

namespace heed::test {
namespace {

template <class V>
bool same_bits(const std::vector<V>& a, const std::vector<V>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0);
}

/// Forward and all gradients against the plain loops.
template <class T>
void expect_exact_as_it_lies(const AttentionCase& shape) {
  const AttentionProblem<T> p(shape);
  AttentionResult<T, accumulator_t<T>> got;
  p.forward(got.out, got.lse);
  p.backward(got.out, got.lse, {}, got);
  expect_exact(p, got);
}

/// Rows of bf16 that are an even number of elements apart may be multiplied in pairs.
template <class T>
void expect_exact(AttentionCase shape) {
  expect_exact_as_it_lies<T>(shape);
  if (!std::is_same_v<T, bfloat16>) return;
  shape.query_padding = 4;
  shape.key_padding = 2;
  expect_exact_as_it_lies<T>(shape);
}

template <class T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, FloatingTypes);

class AttentionByAmx : public ::testing::Test {
 protected:
  AttentionByAmx() { cpu::set_gemm_backend(cpu::GemmBackend::amx); }
  ~AttentionByAmx() override { cpu::set_gemm_backend(cpu::GemmBackend::automatic); }
};

TYPED_TEST(Attention, Lengths) {
  for (const int32_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129}) {
    SCOPED_TRACE(n);
    expect_exact<TypeParam>({.sequences = {{n, n}, {1, n}, {n, 3}}, .width = 8});
    expect_exact<TypeParam>(
        {.sequences = {{n, n}, {5, n}, {n, 9}}, .width = 16, .visibility = {.causal = Causal::top_left}});
  }
}

TYPED_TEST(Attention, Widths) {
  for (const int64_t width : {1, 3, 8, 16, 32, 64, 80, 128}) {
    SCOPED_TRACE(width);
    expect_exact<TypeParam>({.sequences = {{17, 33}, {12, 12}}, .width = width});
    expect_exact<TypeParam>(
        {.sequences = {{12, 12}}, .heads = 3, .key_heads = 3, .width = width, .gaps = true, .dropout = 0.2});
  }
}

const std::vector<Visibility> kVisibilities = {
    {},
    {.causal = Causal::top_left},
    {.causal = Causal::bottom_right},
    {.window_left = 5},
    {.window_right = 3},
    {.causal = Causal::bottom_right, .window_left = 4},
    {.window_left = 7, .window_right = 2},
    {.window_left = 9, .window_right = 9, .dilation = 3},
    {.causal = Causal::top_left, .dilation = 2},
    {.window_left = 3, .window_right = 3, .global_tokens = 2},
    {.causal = Causal::top_left, .window_left = 6, .global_tokens = 3},
    {.causal = Causal::bottom_right, .window_left = 10, .dilation = 4, .global_tokens = 1},
    {.causal = Causal::none_bottom_right, .window_left = 5, .window_right = 2},
    {.causal = Causal::none_bottom_right, .window_left = 3, .dilation = 2, .global_tokens = 1},
    {.causal = Causal::none_bottom_right, .window_left = 4, .window_right = 1, .global_tokens = 22},
    {.causal = Causal::bottom_right, .window_left = 4, .global_tokens = 90},
};

TYPED_TEST(Attention, VisibilityAndGaps) {
  for (size_t i = 0; i < kVisibilities.size(); ++i) {
    SCOPED_TRACE(i);
    expect_exact<TypeParam>({.sequences = {{20, 20}, {13, 29}, {0, 5}, {31, 7}, {5, 0}, {70, 150}, {1, 1}},
                             .width = 8,
                             .visibility = kVisibilities[i],
                             .gaps = true});
  }
}

// Blocks of 64 at random, beside rules; queries that follow cached keys lie across blocks.
constexpr uint32_t kBlocks[] = {0x2d6b35, 0x081041, 0x7ffffe};

TYPED_TEST(Attention, PatternsOfBlocks) {
  for (const uint32_t blocks : kBlocks)
    for (const Visibility& rule :
         {Visibility{}, Visibility{.causal = Causal::top_left}, Visibility{.causal = Causal::bottom_right},
          Visibility{.causal = Causal::none_bottom_right, .window_left = 90, .global_tokens = 3},
          Visibility{.window_left = 70, .window_right = 60, .dilation = 3, .global_tokens = 2}}) {
      SCOPED_TRACE(concat(blocks, ' ', static_cast<int>(rule.causal)));
      expect_exact<TypeParam>({.sequences = {{20, 20}, {70, 193}, {200, 70}, {0, 5}, {130, 130}, {1, 150}},
                               .key_heads = 1,
                               .width = 8,
                               .visibility = rule,
                               .gaps = true,
                               .dropout = blocks == kBlocks[0] ? 0.2 : 0,
                               .blocks = blocks});
    }
  expect_exact<TypeParam>({.sequences = {{150, 150}},
                           .width = 64,
                           .visibility = {.causal = Causal::top_left},
                           .alibi = true,
                           .blocks = kBlocks[0]});
}

// More than a chunk of keys, most of which most queries do not see.
TYPED_TEST(Attention, WindowsOverChunksOfKeys) {
  const auto check = [](const Visibility& rule, uint32_t blocks) {
    expect_exact<TypeParam>({.sequences = {{60, 1100}, {600, 530}},
                             .heads = 1,
                             .key_heads = 1,
                             .width = 8,
                             .visibility = rule,
                             .blocks = blocks});
  };
  check({.window_right = 40}, 0);
  check({.causal = Causal::top_left, .window_left = 30, .global_tokens = 5}, 0);
  check({.causal = Causal::bottom_right, .window_left = 80, .dilation = 7}, kBlocks[0]);
  check({.causal = Causal::bottom_right, .window_left = 30, .global_tokens = 1050}, 0);
  check({.causal = Causal::none_bottom_right, .window_left = 9, .window_right = 9, .global_tokens = 5}, 0);
}

TYPED_TEST(Attention, Biases) {
  for (int parts = 1; parts < 64; ++parts) {
    SCOPED_TRACE(parts);
    const bool bias = parts & 1, shared = parts & 2, mask = parts & 4, alibi = parts & 8,
               relative = parts & 16;
    if (shared && !bias) continue;
    expect_exact<TypeParam>({.sequences = {{20, 20}, {9, 21}, {3, 70}},
                             .heads = 4,
                             .key_heads = 2,
                             .width = 8,
                             .visibility = {.causal = parts & 32 ? Causal::bottom_right : Causal::none},
                             .bias = bias,
                             .shared_bias = shared,
                             .mask = mask,
                             .alibi = alibi,
                             .relative_limit = relative ? 6 : -1,
                             .dropout = parts % 3 == 0 ? 0.25 : 0});
  }
}

/// The forward as decoding has it, without lse, against the plain loops.
template <class T>
void expect_exact_alone(const AttentionCase& shape) {
  const AttentionProblem<T> p(shape);
  const auto inner = [&](const auto& out) { return p.inner(out, p.q_stride, 0, p.c.heads * p.c.width); };
  expect_within<T>(inner(p.forward_alone()), inner(p.template plain<reference_t<T>, reference_t<T>>().out),
                   inner(p.template plain<T, accumulator_t<T>>().out), 2, "out");
}

TYPED_TEST(Attention, CappedScores) {
  for (int parts = 0; parts < 16; ++parts) {
    SCOPED_TRACE(parts);
    const AttentionCase shape{.sequences = {{20, 20}, {9, 21}, {1, 70}, {70, 130}},
                              .heads = 4,
                              .key_heads = 2,
                              .width = parts % 2 ? 32 : 5,
                              .visibility = {.causal = parts & 1 ? Causal::bottom_right : Causal::none},
                              .gaps = parts % 3 == 0,
                              .bias = (parts & 2) != 0,
                              .mask = (parts & 4) != 0,
                              .alibi = (parts & 8) != 0,
                              .relative_limit = parts % 5 == 0 ? 6 : -1,
                              .dropout = parts % 3 == 1 ? 0.25 : 0,
                              .logit_cap = parts % 4 == 3 ? 3 : 0.5};
    expect_exact<TypeParam>(shape);
    expect_exact_alone<TypeParam>(shape);
  }
  expect_exact<TypeParam>(
      {.sequences = {{130, 1100}}, .width = 16, .logit_cap = 1});  // several chunks of keys
}

// Sequences that are long enough for AMX, which has no cap, go by vectors.
TEST_F(AttentionByAmx, LeavesCappedScoresToVectors) {
  expect_exact<float>({.sequences = {{100, 100}}, .width = 32, .logit_cap = 0.7});
  expect_exact<bfloat16>({.sequences = {{100, 100}}, .width = 32, .logit_cap = 0.7});
}

TYPED_TEST(Attention, OneQueryASequence) {
  const std::vector<Lengths> sequences = {{1, 1},  {1, 7},   {1, 16}, {1, 33},
                                          {1, 64}, {1, 150}, {1, 0},  {70, 70}};
  for (size_t i = 0; i < kVisibilities.size(); ++i) {
    SCOPED_TRACE(i);
    expect_exact_alone<TypeParam>(
        {.sequences = sequences, .width = 16, .visibility = kVisibilities[i], .gaps = true});
  }
  for (int parts = 0; parts < 16; ++parts) {
    SCOPED_TRACE(parts);
    expect_exact_alone<TypeParam>({.sequences = sequences,
                                   .heads = 4,
                                   .key_heads = 2,
                                   .width = parts % 3 == 0 ? 80 : 5,
                                   .visibility = {.causal = parts & 1 ? Causal::bottom_right : Causal::none},
                                   .bias = (parts & 2) != 0,
                                   .mask = (parts & 4) != 0,
                                   .alibi = (parts & 8) != 0,
                                   .relative_limit = parts % 5 == 0 ? 6 : -1,
                                   .dropout = parts == 7 ? 0.2 : 0});
  }
}

TYPED_TEST(Attention, SharedKeyHeadsAndDropout) {
  for (const int64_t key_heads : {1, 2, 3, 6})
    expect_exact<TypeParam>({.sequences = {{19, 23}, {66, 130}},
                             .heads = 6,
                             .key_heads = key_heads,
                             .width = 16,
                             .dropout = 0.1});
}

TYPED_TEST(Attention, SeveralChunksOfKeys) {
  expect_exact<TypeParam>({.sequences = {{70, 1100}, {10, 3}, {65, 600}},
                           .heads = 2,
                           .key_heads = 1,
                           .width = 8,
                           .dropout = 0.1});
  expect_exact<TypeParam>({.sequences = {{1100, 1100}},
                           .heads = 1,
                           .key_heads = 1,
                           .width = 8,
                           .visibility = {.causal = Causal::top_left, .window_left = 40}});
}

/// Scores that grow from block to block of keys, by little and by much, with scales of either sign.
template <class T>
void expect_exact_with_growing_scores(int64_t width) {
  for (const double scale : {1 / std::sqrt(double(width)), 0.3, -0.2}) {
    for (const float growth : {0.5f, 1.0f}) {
      SCOPED_TRACE(concat("scale ", scale, ", growth ", growth));
      AttentionProblem<T> p({.sequences = {{70, 330}}, .width = width, .hidden_nan = false});
      p.scale = scale;
      for (int64_t key = 0; key < p.key_rows; ++key) {
        const float by = 1 + growth * static_cast<float>(key / 64);
        for (int64_t i = 0; i < p.c.key_heads * width; ++i) {
          T& x = p.kv[size_t(key * p.kv_stride + i)];
          x = T(by * static_cast<float>(x));
        }
      }
      AttentionResult<T, accumulator_t<T>> got;
      p.forward(got.out, got.lse);
      p.backward(got.out, got.lse, {}, got);
      expect_exact(p, got);
    }
  }
}

TYPED_TEST(Attention, GrowingScores) { expect_exact_with_growing_scores<TypeParam>(16); }

TEST_F(AttentionByAmx, GrowingScores) {
  expect_exact_with_growing_scores<float>(32);
  expect_exact_with_growing_scores<bfloat16>(32);
}

TYPED_TEST(Attention, EverySubsetOfGradientsAndAccumulation) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (const int32_t keys : {29, 700}) {
    const AttentionProblem<T> p({.sequences = {{20, keys}, {13, 11}},
                                 .heads = 4,
                                 .key_heads = 2,
                                 .width = 16,
                                 .visibility = {.causal = Causal::bottom_right},
                                 .gaps = true,
                                 .dropout = 0.1});
    AttentionResult<T, A> all;
    p.forward(all.out, all.lse);
    p.backward(all.out, all.lse, {}, all);
    for (int set = 0; set < 8; ++set) {
      AttentionResult<T, A> some;
      p.backward(all.out, all.lse, {.q = (set & 1) != 0, .k = (set & 2) != 0, .v = (set & 4) != 0}, some);
      if (set & 1) {
        EXPECT_TRUE(same_bits(some.gq, all.gq)) << set;
      }
      if (set & 2) {
        EXPECT_TRUE(same_bits(some.gk, all.gk)) << set;
      }
      if (set & 4) {
        EXPECT_TRUE(same_bits(some.gv, all.gv)) << set;
      }
    }
    AttentionResult<T, A> added = all;
    for (auto* g : {&added.gq, &added.gk, &added.gv}) std::fill(g->begin(), g->end(), T(3.0f));
    p.backward(all.out, all.lse, {.accumulate = true}, added);
    const auto expect_added = [](const std::vector<T>& sum, const std::vector<T>& g) {
      for (size_t i = 0; i < g.size(); ++i) {
        if (std::isnan(double(g[i])))
          ASSERT_EQ(double(sum[i]), 3);
        else
          ASSERT_NEAR(double(sum[i]), double(g[i]) + 3, epsilon<T>() * (3 + 2 * std::fabs(double(g[i]))));
      }
    };
    expect_added(added.gq, all.gq);
    expect_added(added.gk, all.gk);
    expect_added(added.gv, all.gv);
  }
}

TYPED_TEST(Attention, BackwardTakesTheDropoutThatTheForwardKept) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (const Visibility& visibility : kVisibilities) {
    const AttentionProblem<T> p({.sequences = {{20, 29}, {64, 64}, {3, 11}},
                                 .heads = 4,
                                 .key_heads = 2,
                                 .visibility = visibility,
                                 .gaps = true,
                                 .bias = true,
                                 .dropout = 0.2});
    AttentionResult<T, A> drawn, taken;
    p.forward(drawn.out, drawn.lse);
    p.backward(drawn.out, drawn.lse, {}, drawn);
    std::vector<uint8_t> kept(
        static_cast<size_t>(cpu::attention_keep_mask_size<T>(p.segments, p.c.heads, p.dropout)));
    ASSERT_FALSE(kept.empty());
    taken = drawn;
    auto forward = p.forward_args(p.operands(), taken.out.data(), taken.lse.data());
    forward.keep_mask = kept.data();
    cpu::attention_forward<T>(forward);
    std::fill(taken.gbias.begin(), taken.gbias.end(), A(0));
    auto backward =
        p.backward_args(p.operands(), taken.out.data(), taken.lse.data(), {},
                        {taken.gq.data(), taken.gk.data(), taken.gv.data(), taken.gbias.data(), nullptr});
    backward.keep_mask = kept.data();
    cpu::attention_backward<T>(backward);
    EXPECT_TRUE(same_bits(taken.out, drawn.out));
    EXPECT_TRUE(same_bits(taken.gq, drawn.gq));
    EXPECT_TRUE(same_bits(taken.gk, drawn.gk));
    EXPECT_TRUE(same_bits(taken.gv, drawn.gv));
    EXPECT_TRUE(same_bits(taken.gbias, drawn.gbias));
  }
  const AttentionProblem<T> plain({.sequences = {{20, 29}}}),
      longer({.sequences = {{20, 65}}, .dropout = 0.2});
  EXPECT_EQ(cpu::attention_keep_mask_size<T>(plain.segments, 2, plain.dropout), 0);
  EXPECT_EQ(cpu::attention_keep_mask_size<T>(longer.segments, 2, longer.dropout), 0);
}

TYPED_TEST(Attention, WeightsAreThoseOfTheForward) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  for (const Visibility& visibility : kVisibilities) {
    const AttentionProblem<T> p({.sequences = {{5, 4}, {70, 90}},
                                 .heads = 2,
                                 .key_heads = 1,
                                 .width = 16,
                                 .visibility = visibility,
                                 .mask = true,
                                 .dropout = 0.3});
    std::vector<T> out;
    std::vector<A> lse, weights(70 * 90, std::numeric_limits<A>::quiet_NaN());
    p.forward(out, lse);
    const int64_t s = 1, h = 1;
    cpu::attention_weights<T>(
        {p.scores(p.operands()), lse.data(), weights.data(), s, h, 0, p.query_length[s]});
    const auto exact = p.template plain<reference_t<T>, reference_t<T>>();
    for (int64_t i = 0; i < 70; ++i) {
      double sum = 0;
      bool sees_any = false;
      for (int64_t k = 0; k < 90; ++k) {
        const double weight = weights[i * 90 + k];
        sum += weight;
        sees_any |= p.visible(s, i, k);
        double score = 0;
        for (int64_t d = 0; d < 16 && p.visible(s, i, k); ++d)
          score += double(p.q_row(s, i, h, p.q)[d]) * double(p.kv[p.key_offset(s, k, h) + d]) * p.scale;
        const double lse_exact = double(exact.lse[h * p.query_rows + p.query_first[s] + i]);
        const double expected = p.visible(s, i, k) ? std::exp(score - lse_exact) : 0;
        ASSERT_NEAR(weight, expected, 32 * epsilon<A>() * expected * (1 + std::fabs(score))) << i << ' ' << k;
      }
      ASSERT_NEAR(sum, sees_any, 64 * epsilon<A>());
    }
  }
}

TYPED_TEST(Attention, QueriesWithoutKeysGiveZeros) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  AttentionProblem<T> p({.sequences = {{20, 20}}, .width = 16, .mask = true});
  for (int64_t k = 0; k < 20; ++k) p.mask[7 * 20 + k] = p.mask[19 * 20 + k] = false;
  for (const int64_t i : {7, 19})
    for (int64_t d = 0; d < 32; ++d) p.q[i * p.q_stride + d] = p.gout[i * p.q_stride + d] = quiet_nan<T>();
  AttentionResult<T, A> got;
  p.forward(got.out, got.lse);
  p.backward(got.out, got.lse, {}, got);
  for (const int64_t i : {7, 19}) {
    for (int64_t d = 0; d < 32; ++d) {
      EXPECT_EQ(double(got.out[i * p.q_stride + d]), 0);
      EXPECT_EQ(double(got.gq[i * p.q_stride + d]), 0);
    }
    EXPECT_EQ(got.lse[i], -std::numeric_limits<A>::infinity());
  }
  for (const T g : p.inner(got.gk, p.kv_stride, 0, 32)) ASSERT_TRUE(std::isfinite(double(g)));
  for (const T g : p.inner(got.gv, p.kv_stride, 32, 32)) ASSERT_TRUE(std::isfinite(double(g)));
}

TYPED_TEST(Attention, WhatAHiddenKeyHoldsDoesNotMatter) {
  using T = TypeParam;
  using A = accumulator_t<T>;
  const float inf = std::numeric_limits<float>::infinity();
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
    for (const bool mask : {false, true}) {
      AttentionProblem<T> p({.sequences = {{75, 75}},
                             .width = 16,
                             .visibility = {.causal = mask ? Causal::none : Causal::top_left},
                             .mask = mask});
      if (mask) {
        for (int64_t i = 0; i < 75 * 75; ++i) p.mask[i] = i % 75 != 40 || i / 75 >= 60;
      }
      AttentionResult<T, A> clean, got;
      p.forward(clean.out, clean.lse);
      p.backward(clean.out, clean.lse, {}, clean);
      std::fill_n(p.kv.begin() + 40 * p.kv_stride, 64, T(poison));  // seen by later queries only
      p.forward(got.out, got.lse);
      p.backward(got.out, got.lse, {}, got);
      for (int64_t i = 0; i < (mask ? 60 : 40); ++i) {
        for (int64_t d = 0; d < 32; ++d) {
          const int64_t at = i * p.q_stride + d;
          ASSERT_NEAR(double(got.out[at]), double(clean.out[at]), 8 * epsilon<T>()) << i;
          ASSERT_NEAR(double(got.gq[at]), double(clean.gq[at]), 8 * epsilon<T>()) << i;
        }
      }
      for (int64_t i = mask ? 60 : 40; i < 75; ++i)
        ASSERT_FALSE(std::isfinite(double(got.out[i * p.q_stride])));
    }
  }
}

TEST(Attention, GradientsAgreeWithDifferences) {
  for (const bool shared : {false, true}) {
    AttentionProblem<double> p({.sequences = {{5, 7}, {4, 3}},
                                .heads = 4,
                                .key_heads = 2,
                                .width = 3,
                                .visibility = {.causal = Causal::bottom_right, .window_left = 4},
                                .bias = true,
                                .shared_bias = shared,
                                .alibi = true,
                                .relative_limit = 2,
                                .dropout = 0.25});
    AttentionResult<double, double> got;
    p.forward(got.out, got.lse);
    p.backward(got.out, got.lse, {}, got);
    const auto loss = [&] {
      std::vector<double> out, lse;
      p.forward(out, lse);
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) {
        if (!std::isnan(p.gout[i])) sum += out[i] * p.gout[i];
      }
      return sum;
    };
    const auto check = [&](std::vector<double>& at, const std::vector<double>& gradient, const char* what) {
      for (size_t i = 0; i < at.size(); ++i) {
        if (!std::isfinite(at[i]) || std::isnan(gradient[i])) continue;  // between the rows, hidden
        const double before = at[i];
        at[i] = before + 1e-5;
        const double up = loss();
        at[i] = before - 1e-5;
        const double down = loss();
        at[i] = before;
        EXPECT_NEAR(gradient[i], (up - down) / 2e-5, 1e-8) << what << ' ' << i;
      }
    };
    check(p.q, got.gq, "q");
    check(p.bias, got.gbias, "bias");
    check(p.relative, got.grelative, "relative");
    std::vector<double> gkv = got.gk;
    for (size_t i = 0; i < gkv.size(); ++i) {
      if (std::isnan(gkv[i])) gkv[i] = got.gv[i];
    }
    check(p.kv, gkv, "kv");
  }
}

TEST(Attention, ASequenceDoesNotDependOnItsNeighbours) {
  const AttentionProblem<float> packed({.sequences = {{33, 41}, {20, 20}},
                                        .width = 16,
                                        .visibility = {.causal = Causal::bottom_right},
                                        .gaps = true});
  const AttentionProblem<float> alone(
      {.sequences = {{33, 41}}, .width = 16, .visibility = {.causal = Causal::bottom_right}});
  AttentionResult<float, float> a, b;
  packed.forward(a.out, a.lse);
  packed.backward(a.out, a.lse, {}, a);
  alone.forward(b.out, b.lse);
  alone.backward(b.out, b.lse, {}, b);
  a.out.resize(b.out.size());
  a.gq.resize(b.gq.size());
  a.gk.resize(b.gk.size());
  a.gv.resize(b.gv.size());
  EXPECT_TRUE(same_bits(a.out, b.out));
  EXPECT_TRUE(same_bits(a.gq, b.gq));
  EXPECT_TRUE(same_bits(a.gk, b.gk));
  EXPECT_TRUE(same_bits(a.gv, b.gv));
}

void expect_same_bits_with_any_threads(const AttentionCase& shape) {
  const int before = thread_count();
  const AttentionProblem<float> p(shape);
  AttentionResult<float, float> one;
  set_thread_count(1);
  p.forward(one.out, one.lse);
  p.backward(one.out, one.lse, {}, one);
  for (const int threads : {2, 4}) {
    set_thread_count(threads);
    AttentionResult<float, float> many;
    p.forward(many.out, many.lse);
    p.backward(many.out, many.lse, {}, many);
    EXPECT_TRUE(same_bits(many.out, one.out) && same_bits(many.lse, one.lse));
    EXPECT_TRUE(same_bits(many.gq, one.gq) && same_bits(many.gk, one.gk) && same_bits(many.gv, one.gv));
    EXPECT_TRUE(same_bits(many.gbias, one.gbias) && same_bits(many.grelative, one.grelative));
  }
  set_thread_count(before);
}

TEST(Attention, ThreadCountDoesNotMatter) {
  for (const bool biased : {false, true}) {
    AttentionCase shape{.sequences = {{300, 1300}, {70, 70}, {1, 5}},
                        .heads = 4,
                        .key_heads = 2,
                        .width = 16,
                        .visibility = {.causal = Causal::bottom_right},
                        .relative_limit = biased ? 9 : -1,
                        .dropout = 0.1};
    shape.bias = shape.shared_bias = biased;
    expect_same_bits_with_any_threads(shape);
    shape.visibility = {.causal = Causal::bottom_right, .window_left = 50, .global_tokens = 1020};
    expect_same_bits_with_any_threads(shape);
  }
}

TEST_F(AttentionByAmx, ThreadCountDoesNotMatter) {
  expect_same_bits_with_any_threads({.sequences = {{600, 70}, {70, 70}, {1, 5}},
                                     .width = 32,
                                     .visibility = {.causal = Causal::bottom_right},
                                     .relative_limit = 9});
}

/// Where the processor has no tiles they are plain loops.
TEST_F(AttentionByAmx, RowsThatFillThem) {
  for (const int64_t width : {32, 64, 96}) {
    for (const Causal causal : {Causal::none, Causal::bottom_right}) {
      SCOPED_TRACE(width);
      const AttentionCase shape{.sequences = {{64, 64}, {16, 48}, {70, 130}, {140, 50}, {33, 530}},
                                .width = width,
                                .visibility = {.causal = causal},
                                .dropout = width == 64 ? 0 : 0.1};
      expect_exact<bfloat16>(shape);
      if (width == 32) expect_exact<float>(shape);
    }
  }
}

template <class T>
void expect_infinite_values_to_count() {
  AttentionProblem<T> p({.sequences = {{130, 100}}, .width = 64});
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  p.kv[size_t(p.kv_stride * 70 + p.c.key_heads * p.c.width)] = T(kInfinity);  // a value of key 70
  AttentionResult<T, float> got;
  p.forward(got.out, got.lse);
  int64_t infinite = 0;
  for (const auto x : p.inner(got.out, p.q_stride, 0, p.c.heads * p.c.width)) {
    EXPECT_FALSE(std::isnan(static_cast<float>(x)));
    infinite += static_cast<float>(x) == kInfinity;
  }
  EXPECT_GT(infinite, 0);
}

TEST_F(AttentionByAmx, InfiniteValuesAreWeighedByVectors) {
  expect_infinite_values_to_count<float>();
  expect_infinite_values_to_count<bfloat16>();
}

TEST(Attention, SmallWeightsMakeNoSubnormalNumbers) {
  for (const Causal causal : {Causal::none, Causal::top_left}) {
    AttentionProblem<float> p(
        {.sequences = {{12, 12}, {21, 21}, {1, 300}, {2, 40}}, .visibility = {.causal = causal}});
    for (float& x : p.q) x *= 100;  // scores far apart
    AttentionResult<float, float> got;
    p.forward(got.out, got.lse);
    p.backward(got.out, got.lse, {}, got);
    for (const auto* values : {&got.out, &got.gq, &got.gk, &got.gv}) {
      for (const float x : *values) EXPECT_NE(std::fpclassify(x), FP_SUBNORMAL);
    }
  }
}

TEST(Attention, NothingToDo) {
  AttentionResult<float, float> got;
  for (const AttentionCase& shape : {AttentionCase{.sequences = {}}, AttentionCase{.sequences = {{0, 0}}},
                                     AttentionCase{.sequences = {{0, 4}, {3, 0}}, .gaps = true}}) {
    const AttentionProblem<float> p(shape);
    p.forward(got.out, got.lse);
    p.backward(got.out, got.lse, {}, got);
    for (const float value : p.inner(got.out, p.q_stride, 0, 32)) EXPECT_EQ(value, 0);
    for (const float value : p.inner(got.gq, p.q_stride, 0, 32)) EXPECT_EQ(value, 0);
    for (const float value : p.inner(got.gk, p.kv_stride, 0, 32)) EXPECT_EQ(value, 0);
    for (const float value : p.inner(got.gv, p.kv_stride, 32, 32)) EXPECT_EQ(value, 0);
  }
}

}  // namespace
}  // namespace heed::test
