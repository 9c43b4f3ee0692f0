// The attention kernels for Hopper, against plain loops in double. Skipped where the device is another.
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

  static AttentionCase aligned(AttentionCase c) {
    c.query_padding = c.key_padding = 8;
    c.hidden_nan = false;
    return c;
  }
  static void expect_path(const Problem& p) {
    EXPECT_EQ(cuda::attention_path(Attention(p).forward_args()), cuda::AttentionPath::hopper);
  }
  static void check(const AttentionCase& c) {
    check_problem(Problem(aligned(c)), cuda::AttentionPath::hopper);
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

TEST_F(HopperAttention, NoKeysOrNoQueries) {
  for (const std::vector<Lengths>& lengths : {std::vector<Lengths>{{5, 0}, {17, 0}}, {{0, 5}, {0, 17}}}) {
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
    check_problem(Problem({.sequences = {{70, 98}, {96, 70}},
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

TEST_F(HopperAttention, SameBitsInEverySchedule) {
  for (const int64_t width : {64, 128}) {
    const Problem p(aligned({.sequences = {{200, 390}, {3, 140}},
                             .heads = 2,
                             .key_heads = 1,
                             .width = width,
                             .visibility = {.causal = Causal::bottom_right}}));
    expect_path(p);
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
}

}  // namespace
}  // namespace heed::test
