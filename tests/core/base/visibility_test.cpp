#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/visibility.h>

namespace heed {
namespace {

TEST(Visibility, CausalAlignments) {
  const Visibility top{.causal = Causal::top_left};
  const Visibility bottom{.causal = Causal::bottom_right};
  EXPECT_TRUE(top.visible(0, 0, 2, 4));
  EXPECT_FALSE(top.visible(0, 1, 2, 4));
  EXPECT_TRUE(bottom.visible(0, 2, 2, 4));
  EXPECT_FALSE(bottom.visible(0, 3, 2, 4));
  EXPECT_TRUE(bottom.visible(1, 3, 2, 4));
  EXPECT_FALSE(bottom.visible(0, 0, 4, 2)) << "with fewer keys than queries the first queries see none";
}

// Two queries after three keys of a cache, with a window of one key before and one after.
TEST(Visibility, WindowsCountCachedKeys) {
  const Visibility first{.window_left = 1, .window_right = 1},
      last{.causal = Causal::none_bottom_right, .window_left = 1, .window_right = 1};
  const bool from_first[2][5] = {{true, true, false, false, false}, {true, true, true, false, false}},
             from_last[2][5] = {{false, false, true, true, true}, {false, false, false, true, true}};
  for (int q = 0; q < 2; ++q)
    for (int k = 0; k < 5; ++k) {
      EXPECT_EQ(first.visible(q, k, 2, 5), from_first[q][k]) << q << " " << k;
      EXPECT_EQ(last.visible(q, k, 2, 5), from_last[q][k]) << q << " " << k;
    }
  const Visibility open{.causal = Causal::none_bottom_right};
  EXPECT_TRUE(open.visible(0, 4, 2, 5)) << "without a window every key is seen";
}

// Two global tokens and windows of the token itself: a query is what stands in its place.
TEST(Visibility, GlobalTokensCountCachedKeys) {
  const auto seen = [](Causal causal, int queries) {
    const Visibility rule{causal, 0, 0, 1, 2};
    std::vector<std::string> rows;
    for (int q = 0; q < queries; ++q) {
      rows.emplace_back();
      for (int k = 0; k < 5; ++k) rows.back() += rule.visible(q, k, queries, 5) ? 'x' : '.';
    }
    return rows;
  };
  using Rows = std::vector<std::string>;
  EXPECT_EQ(seen(Causal::none, 3), (Rows{"xxxxx", "xxxxx", "xxx.."}));
  EXPECT_EQ(seen(Causal::bottom_right, 5), (Rows{"x....", "xx...", "xxx..", "xx.x.", "xx..x"}));
  EXPECT_EQ(seen(Causal::bottom_right, 2), (Rows{"xx.x.", "xx..x"}));
  EXPECT_EQ(seen(Causal::none_bottom_right, 5), (Rows{"xxxxx", "xxxxx", "xxx..", "xx.x.", "xx..x"}));
  EXPECT_EQ(seen(Causal::none_bottom_right, 4), (Rows{"xxxxx", "xxx..", "xx.x.", "xx..x"}));
  EXPECT_EQ(seen(Causal::none_bottom_right, 1), (Rows{"xx..x"}));
  // No token stands before the first key.
  EXPECT_EQ(seen(Causal::none_bottom_right, 6), (Rows{"xx...", "xxxxx", "xxxxx", "xxx..", "xx.x.", "xx..x"}));
}

// key_begin and key_end bound exactly what visible() allows, for every combination of rules on small shapes.
TEST(Visibility, BoundsHoldForEveryRule) {
  for (Causal causal : {Causal::none, Causal::top_left, Causal::none_bottom_right, Causal::bottom_right})
    for (int left : {-1, 0, 2})
      for (int right : {-1, 0, 1})
        for (int dilation : {1, 2})
          for (int global : {0, 1, 3})
            for (int queries = 1; queries <= 6; ++queries)
              for (int keys = 0; keys <= 6; ++keys) {
                const Visibility rule{causal, left, right, dilation, global};
                for (int q = 0; q < queries; ++q)
                  for (int k = 0; k < keys; ++k) {
                    if (!rule.visible(q, k, queries, keys)) continue;
                    EXPECT_GE(k, rule.key_begin(q, queries, keys));
                    EXPECT_LT(k, rule.key_end(q, queries, keys));
                  }
              }
}

// block() says none or all only where visible() does, and says so of every block that the rule alone decides.
TEST(Visibility, BlocksAreWhatTheirPairsAre) {
  int64_t decided = 0, some = 0;
  for (Causal causal : {Causal::none, Causal::top_left, Causal::none_bottom_right, Causal::bottom_right})
    for (int left : {-1, 0, 2})
      for (int right : {-1, 0, 1})
        for (int dilation : {1, 2})
          for (int global : {0, 1, 3})
            for (int q0 = 0; q0 < 8; ++q0)
              for (int q1 = q0 + 1; q1 <= 8; q1 += 2)
                for (int k0 = 0; k0 < 6; ++k0)
                  for (int k1 = k0 + 1; k1 <= 6; k1 += 2) {
                    const Visibility rule{causal, left, right, dilation, global};
                    int count = 0;
                    for (int q = q0; q < q1; ++q)
                      for (int k = k0; k < k1; ++k) count += rule.visible(q, k, 8, 6);
                    const BlockVisibility block = rule.block(q0, q1, k0, k1, 8, 6);
                    if (block == BlockVisibility::none) {
                      ASSERT_EQ(count, 0);
                    }
                    if (block == BlockVisibility::all) {
                      ASSERT_EQ(count, (q1 - q0) * (k1 - k0));
                    }
                    block == BlockVisibility::some ? ++some : ++decided;
                    if (dilation == 1 && global == 0 && (count == 0 || count == (q1 - q0) * (k1 - k0))) {
                      ASSERT_NE(block, BlockVisibility::some);
                    }
                  }
  EXPECT_GT(decided, 0);
  EXPECT_GT(some, 0);
}

}  // namespace
}  // namespace heed
