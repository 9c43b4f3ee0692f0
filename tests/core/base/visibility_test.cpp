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

// key_begin and key_end bound exactly what visible() allows, for every combination of rules on small shapes.
TEST(Visibility, BoundsHoldForEveryRule) {
  for (Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right})
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

}  // namespace
}  // namespace heed
