#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/visibility_view.h>

namespace heed {
namespace {

struct Lengths {
  int32_t queries, keys;
};
constexpr Lengths kLengths[] = {{190, 260}, {260, 190}};  // 5 by 5 blocks of places and keys hold either

/// A pattern whose block (i, j) is seen if bit (3 i + j) % 7 is set.
struct Pattern {
  std::vector<uint32_t> of_queries = std::vector<uint32_t>(5), of_keys = of_queries;

  explicit Pattern(uint32_t bits) {
    for (uint32_t i = 0; i < 5; ++i)
      for (uint32_t j = 0; j < 5; ++j)
        if (bits >> ((3 * i + j) % 7) & 1) {
          of_queries[i] |= 1u << j;
          of_keys[j] |= 1u << i;
        }
  }
  BlockPatternView view() const { return {of_queries.data(), of_keys.data(), 5, 5}; }
};

/// Calls f(view) for rules and patterns of many kinds.
template <class F>
void for_each_view(const F& f) {
  const Pattern patterns[] = {Pattern(0b0110101), Pattern(0b0000100)};
  for (Causal causal : {Causal::none, Causal::top_left, Causal::none_bottom_right, Causal::bottom_right})
    for (int left : {-1, 0, 70})
      for (int right : {-1, 5})
        for (int dilation : {1, 3})
          for (int global : {0, 2, 66, 100})
            for (int pattern : {-1, 0, 1}) {
              const Visibility rule{causal, left, right, dilation, global};
              f(VisibilityView(rule, pattern < 0 ? BlockPatternView() : patterns[pattern].view()));
            }
}

bool in_pattern(const VisibilityView& v, int64_t q, int64_t k, const Lengths& n) {
  if (!v.blocks.given()) return true;
  const int64_t place = v.diagonal(q, n.queries, n.keys);
  return place >= 0 && (v.blocks.of_queries[place / 64] >> (k / 64) & 1) != 0;
}

TEST(VisibilityView, BothRuleAndPatternDecide) {
  for_each_view([](const VisibilityView& v) {
    const Visibility& rule = v;
    for (const Lengths& n : kLengths)
      for (int64_t q = 0; q < n.queries; q += 7)
        for (int64_t k = 0; k < n.keys; k += 3)
          ASSERT_EQ(v.sees(q, k, n.queries, n.keys),
                    rule.visible(q, k, n.queries, n.keys) && in_pattern(v, q, k, n));
  });
}

TEST(VisibilityView, PlacesBeforeTheFirstKeyAreInNoBlock) {
  const Pattern all(0x7f);
  const VisibilityView v(Visibility{.causal = Causal::none_bottom_right}, all.view());
  EXPECT_FALSE(v.sees(0, 0, 10, 9));
  EXPECT_TRUE(v.sees(1, 8, 10, 9));
  EXPECT_EQ(v.blocks.block(-1, 9, 0, 9), BlockVisibility::some);
  EXPECT_EQ(v.blocks.block(-1, 0, 0, 9), BlockVisibility::none);
}

TEST(BlockPatternView, BlocksAreWhatTheirPairsAre) {
  int64_t decided = 0;
  for (const uint32_t bits : {0b0110101u, 0b0000100u, 0b1111111u}) {
    const Pattern pattern(bits);
    const BlockPatternView v = pattern.view();
    for (int32_t p0 = -40; p0 < 340; p0 += 31)
      for (int32_t k0 = 0; k0 < 340; k0 += 32) {
        const int32_t p1 = p0 + 60, k1 = k0 + 32;
        int64_t count = 0;
        for (int32_t place = p0; place < p1; ++place)
          for (int32_t k = k0; k < k1; ++k) count += v.holds(place, k);
        const BlockVisibility want = count == 0                       ? BlockVisibility::none
                                     : count == (p1 - p0) * (k1 - k0) ? BlockVisibility::all
                                                                      : BlockVisibility::some;
        ASSERT_EQ(v.block(p0, p1, k0, k1), want) << bits << ' ' << p0 << ' ' << k0;
        decided += want != BlockVisibility::some;
      }
  }
  EXPECT_GT(decided, 50);
}

// How many steps a walk looked at, and in how many nothing is seen.
struct Walked {
  int64_t looked = 0, empty = 0;
};

// Keys that a walk by next_key() for queries [first, last) looks at.
std::vector<bool> walked_keys(const VisibilityView& v, int32_t first, int32_t last, int32_t step,
                              const Lengths& n, Walked& walked) {
  std::vector<bool> keys(static_cast<size_t>(n.keys + 64));
  for (int32_t k = v.next_key(first, last, 0, step, n.queries, n.keys); k < n.keys;
       k = v.next_key(first, last, k + step, step, n.queries, n.keys)) {
    EXPECT_EQ(k % step, 0);
    bool some = false;
    for (int32_t i = k; i < k + step; ++i) {
      keys[static_cast<size_t>(i)] = true;
      for (int32_t q = first; q < last && i < n.keys && !some; ++q) some = v.sees(q, i, n.queries, n.keys);
    }
    ++walked.looked;
    walked.empty += !some;
  }
  return keys;
}

// Queries that a walk by next_query() for keys [first, last) looks at.
std::vector<bool> walked_queries(const VisibilityView& v, int32_t first, int32_t last, int32_t step,
                                 const Lengths& n) {
  std::vector<bool> queries(static_cast<size_t>(n.queries + 64));
  for (int32_t q = v.next_query(first, last, 0, step, n.queries, n.keys); q < n.queries;
       q = v.next_query(first, last, q + step, step, n.queries, n.keys)) {
    EXPECT_EQ(q % step, 0);
    std::fill_n(queries.begin() + q, step, true);
  }
  return queries;
}

// Walks pass nothing over that is visible, and look at few steps in which nothing is.
TEST(VisibilityView, WalksPassNothingOver) {
  for (const int32_t step : {1, 64}) {
    Walked walked;
    for_each_view([&](const VisibilityView& v) {
      for (const Lengths& n : kLengths) {
        for (int32_t first = 0; first < n.queries; first += 64) {
          const int32_t last = std::min(first + 64, n.queries);
          const std::vector<bool> keys = walked_keys(v, first, last, step, n, walked);
          for (int32_t q = first; q < last; q += 9)  // the first and the last
            for (int32_t k = 0; k < n.keys; ++k)
              ASSERT_TRUE(!v.sees(q, k, n.queries, n.keys) || keys[static_cast<size_t>(k)]) << q << ' ' << k;
        }
        for (int32_t first = 0; first < n.keys; first += 64) {
          const int32_t last = std::min(first + 64, n.keys);
          const std::vector<bool> queries = walked_queries(v, first, last, step, n);
          for (int32_t q = 0; q < n.queries; ++q)
            for (int32_t k = first; k < last; k += 9)
              ASSERT_TRUE(!v.sees(q, k, n.queries, n.keys) || queries[static_cast<size_t>(q)])
                  << q << ' ' << k;
        }
      }
    });
    EXPECT_LT(walked.empty, walked.looked / 4) << step;
  }
}

// Of a length of which a walk must not take steps by the length.
TEST(VisibilityView, WalksTakeTimeByWhatIsSeen) {
  const int32_t length = 1 << 30, at = 1 << 29;
  const VisibilityView v(Visibility{.causal = Causal::top_left, .window_left = 256, .global_tokens = 16});
  std::vector<int32_t> keys, queries;
  for (int32_t k = v.next_key(at, at + 64, 0, 64, length, length); k < length;
       k = v.next_key(at, at + 64, k + 64, 64, length, length))
    keys.push_back(k);
  EXPECT_EQ(keys, (std::vector<int32_t>{0, at - 256, at - 192, at - 128, at - 64, at}));
  for (int32_t q = v.next_query(at, at + 64, 0, 64, length, length); q < length;
       q = v.next_query(at, at + 64, q + 64, 64, length, length))
    queries.push_back(q);
  EXPECT_EQ(queries, (std::vector<int32_t>{at, at + 64, at + 128, at + 192, at + 256}));
  EXPECT_EQ(v.keys_seen(at, length, length), 257 + 16);
  EXPECT_EQ(v.keys_seen(20, length, length), 21);
}

// Queries after a cache are walked as those in their places without one.
TEST(VisibilityView, WalksGoByPlacesAfterACache) {
  const int32_t length = 1 << 30, fresh = 64, at = length - fresh;
  for (const int32_t global : {0, 16}) {
    const VisibilityView v(
        Visibility{.causal = Causal::bottom_right, .window_left = 256, .global_tokens = global});
    std::vector<int32_t> keys;
    for (int32_t k = v.next_key(0, fresh, 0, 64, fresh, length); k < length;
         k = v.next_key(0, fresh, k + 64, 64, fresh, length))
      keys.push_back(k);
    std::vector<int32_t> want{at - 256, at - 192, at - 128, at - 64, at};
    if (global > 0) want.insert(want.begin(), 0);
    EXPECT_EQ(keys, want);
    EXPECT_EQ(v.keys_seen(0, fresh, length), 257 + global);
    EXPECT_EQ(v.next_query(at - 320, at - 256, 0, 64, fresh, length), fresh) << "too far back for all";
    EXPECT_EQ(v.next_query(0, 64, 0, 64, fresh, length), global > 0 ? 0 : fresh);
  }
}

TEST(VisibilityView, CountsBlocksWhole) {
  const Pattern pattern(0b0000001);  // block (i, j) where 3 i + j is a multiple of 7
  const VisibilityView v(Visibility{.causal = Causal::top_left}, pattern.view());
  EXPECT_EQ(v.keys_seen(10, 260, 260), 11);           // (0, 0)
  EXPECT_EQ(v.keys_seen(64 + 10, 260, 260), 0);       // (1, 4) is later
  EXPECT_EQ(v.keys_seen(64 * 2 + 10, 260, 260), 64);  // (2, 1)
}

}  // namespace
}  // namespace heed
