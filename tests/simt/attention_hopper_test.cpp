// The attention kernels for Hopper, against plain loops in double. Skipped where the device is another.
#include <algorithm>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/kernels/simt/host/emulator.h>

#include "attention_check.h"

namespace heed::test {
namespace {

using heed::testing::bytes_of;
using Problem = AttentionProblem<bfloat16>;

class HopperAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::compute_capability() != 90) GTEST_SKIP() << "the device is not of compute capability 9.0";
  }

  // With a sequence of so many keys that the backward is Hopper's too.
  static AttentionCase aligned(AttentionCase c) {
    const auto has_many = [](const Lengths& l) { return l.keys >= cuda::kHopperSummedKeys; };
    if (std::ranges::none_of(c.sequences, has_many)) c.sequences.push_back({1, cuda::kHopperSummedKeys});
    return test::aligned(std::move(c));
  }
  static void expect_path(const Problem& p) {
    const Attention attention(p);
    EXPECT_EQ(cuda::attention_path(attention.forward_args()), cuda::AttentionPath::hopper);
    EXPECT_EQ(cuda::attention_path(attention.backward_args({.bias = false})), cuda::AttentionPath::hopper);
  }
  static void check(const AttentionCase& c) {
    Problem p(aligned(c));
    expect_path(p);
    check_problem(std::move(p), cuda::AttentionPath::flash);
  }
};

TEST_F(HopperAttention, WidthsAndLengths) {
  for (const int64_t width : {64, 128})
    for (const Lengths lengths :
         {Lengths{1, 129}, {129, 1}, {64, 128}, {128, 256}, {192, 129}, {257, 300}, {300, 63}}) {
      SCOPED_TRACE(concat(width, ": ", lengths.queries, ' ', lengths.keys));
      const int32_t most = 300;  // so that the kernels for short sequences leave it alone
      check({.sequences = {lengths, {most, most}}, .heads = 1, .key_heads = 1, .width = width});
    }
}

// From 1,024 keys on and without rules tiles of keys are larger, and two blocks share them: of some sequences
// the last one has no queries.
TEST_F(HopperAttention, ManyKeys) {
  for (const Lengths lengths : {Lengths{3, 1024}, {130, 1060}, {257, 1056}}) {
    SCOPED_TRACE(lengths.keys);
    check({.sequences = {lengths, {70, 177}, {5, 176}}, .heads = 1, .key_heads = 1, .width = 128});
  }
  check({.sequences = {{0, 5}, {300, 20}, {5, 0}, {1, 1030}},
         .heads = 2,
         .key_heads = 1,
         .width = 128,
         .gaps = true});
}

// Not of two blocks, which see different keys then.
TEST_F(HopperAttention, RulesOverManyKeys) {
  for (const Visibility& rule : {Visibility{.causal = Causal::top_left}, Visibility{.window_left = 0},
                                 Visibility{.window_right = 0}}) {
    SCOPED_TRACE(concat(static_cast<int>(rule.causal), ' ', rule.window_left, ' ', rule.window_right));
    check({.sequences = {{400, 1030}}, .heads = 1, .key_heads = 1, .width = 128, .visibility = rule});
  }
}

TEST_F(HopperAttention, RulesAndGaps) {
  for (const int64_t width : {64, 128})
    for (const Visibility& rule : kRules) {
      // Other kernels take these.
      if (rule.dilation > 1 || rule.global_tokens > 0 || rule.causal == Causal::none_bottom_right) continue;
      SCOPED_TRACE(concat(width, ": ", rule.window_left, ' ', rule.window_right));
      check({.sequences = {{20, 20}, {0, 5}, {31, 7}, {5, 0}, {1, 1}, {150, 290}, {290, 150}},
             .heads = 1,
             .key_heads = 1,
             .width = width,
             .visibility = rule,
             .gaps = true});
    }
}

TEST_F(HopperAttention, SharedKeyHeads) {
  for (const int64_t width : {64, 128})
    check({.sequences = {{130, 200}, {7, 9}}, .heads = 4, .key_heads = 2, .width = width});
}

TEST_F(HopperAttention, RangesOfKeys) {
  for (const int64_t width : {64, 128})
    for (const Visibility& rule :
         {Visibility{.causal = Causal::top_left}, Visibility{.causal = Causal::bottom_right},
          Visibility{.causal = Causal::bottom_right, .window_left = 70},
          Visibility{.window_left = 20, .window_right = 2}, Visibility{.window_right = 0},
          Visibility{.causal = Causal::top_left, .window_left = 0}})
      for (const auto& [queries, keys] : {std::pair{300, 300}, {140, 290}, {290, 140}}) {
        SCOPED_TRACE(concat(width, ": ", queries, " by ", keys, ", causal ", static_cast<int>(rule.causal),
                            ", window ", rule.window_left, " ", rule.window_right));
        check({.sequences = {{queries, keys}, {3, 5}},  // what follows are no zeros
               .heads = 2,
               .key_heads = 1,
               .width = width,
               .visibility = rule});
      }
}

// The queries and the keys end with a tile, and no query sees the last keys.
TEST_F(HopperAttention, KeysBehindTheLastQuery) {
  for (const int64_t width : {64, 128})
    check({.sequences = {{128, 384}, {128, 128}},
           .heads = 1,
           .key_heads = 1,
           .width = width,
           .visibility = {.causal = Causal::top_left}});
}

// What lies that far from a place is more than 32 bits hold.
TEST_F(HopperAttention, WindowsThatShowEverything) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (const int64_t width : {64, 128})
    check({.sequences = {{100, 300}},
           .heads = 1,
           .key_heads = 1,
           .width = width,
           .visibility = {.causal = Causal::bottom_right, .window_left = kMost, .window_right = kMost}});
}

TEST_F(HopperAttention, NoKeysOrNoQueries) {
  for (const std::vector<Lengths>& lengths : {std::vector<Lengths>{{5, 0}, {17, 0}}, {{0, 5}, {0, 300}}}) {
    SCOPED_TRACE(lengths[0].queries);
    check({.sequences = lengths, .heads = 2, .key_heads = 1, .width = 128, .gaps = true});
  }
}

TEST_F(HopperAttention, EverySubsetOfGradientsAndAccumulation) {
  for (const int64_t width : {64, 128}) {
    SCOPED_TRACE(width);
    const Problem p(aligned({.sequences = {{120, 140}, {13, 11}},
                             .heads = 2,
                             .key_heads = 1,
                             .width = width,
                             .visibility = {.causal = Causal::bottom_right},
                             .gaps = true}));
    expect_path(p);
    check_subsets_of_gradients(p);
  }
}

TEST_F(HopperAttention, WithoutLogSumExp) {
  for (const int64_t width : {64, 128}) {
    const Problem p(aligned({.sequences = {{100, 100}}, .width = width}));
    expect_path(p);
    check_without_log_sum_exp(p);
  }
}

// What a hidden key holds does not count, NaN included.
TEST_F(HopperAttention, HiddenNaN) {
  for (const int64_t width : {64, 128}) {
    SCOPED_TRACE(width);
    check_problem(Problem({.sequences = {{70, 98}, {96, 70}, {1, cuda::kHopperSummedKeys}},
                           .heads = 2,
                           .key_heads = 2,
                           .width = width,
                           .visibility = {.window_left = 5, .window_right = 3},
                           .query_padding = 8,
                           .key_padding = 8,
                           .hidden_nan = true}),
                  cuda::AttentionPath::hopper);
  }
}

// Behind the last key of a sequence, in the tiles that two blocks share.
TEST_F(HopperAttention, HiddenNaNBehindManyKeys) {
  check_problem(Problem({.sequences = {{20, 1030}, {5, 9}},
                         .heads = 1,
                         .key_heads = 1,
                         .width = 128,
                         .gaps = true,
                         .query_padding = 8,
                         .key_padding = 8,
                         .hidden_nan = true}),
                cuda::AttentionPath::flash);
}

TEST_F(HopperAttention, TakesGradientsOfManyKeysInOrder) {
  const auto path = [](int32_t keys, bool in_order) {
    Problem p({.sequences = {{100, keys}}, .width = 64, .query_padding = 8, .key_padding = 8});
    p.segments.in_order = in_order;
    return cuda::attention_path(Attention(p).backward_args({.bias = false}));
  };
  EXPECT_EQ(path(cuda::kHopperSummedKeys, true), cuda::AttentionPath::hopper);
  EXPECT_EQ(path(cuda::kHopperSummedKeys - 1, true), cuda::AttentionPath::flash);
  EXPECT_EQ(path(cuda::kHopperSummedKeys, false), cuda::AttentionPath::flash);
}

void expect_same_bits_in_every_schedule(const Problem& p) {
  const Attention attention(p);
  std::vector<std::vector<unsigned char>> first;
  heed::testing::each_schedule([&](const std::string& schedule) {
    AttentionResult<bfloat16, float> r;
    attention.forward(r);
    attention.backward({.bias = false}, r);
    const std::vector<std::vector<unsigned char>> got{bytes_of(r.out), bytes_of(r.lse), bytes_of(r.gq),
                                                      bytes_of(r.gk), bytes_of(r.gv)};
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << schedule;
  });
}

TEST_F(HopperAttention, SameBitsInEverySchedule) {
  std::vector<AttentionCase> cases{
      {.sequences = {{200, 1030}, {3, 140}}, .heads = 2, .key_heads = 1, .width = 128}};
  for (const int64_t width : {64, 128})
    cases.push_back({.sequences = {{200, 390}, {3, 140}},
                     .heads = 2,
                     .key_heads = 1,
                     .width = width,
                     .visibility = {.causal = Causal::bottom_right}});
  for (const AttentionCase& c : cases) {
    const Problem p(aligned(c));
    expect_path(p);
    expect_same_bits_in_every_schedule(p);
  }
}

}  // namespace
}  // namespace heed::test
