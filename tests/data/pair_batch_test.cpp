#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/pair_batch.h>

#include "../support/expect_error.h"

namespace heed::data {
namespace {

using Ids = TokenIds;

const Pair kPairs[] = {{{7, 8}, {9}}, {{5}, {4, 3, 6}}, {{6, 6, 6}, {}}};
const int64_t kNumbers[] = {40, 2, 11};

TEST(PairBatch, PackedRowsFollowOneAnother) {
  const PairBatch batch = pack(kPairs, kNumbers);
  EXPECT_EQ(batch.size(), 3);
  EXPECT_EQ(batch.source_ids, (Ids{1, 7, 8, 2, 1, 5, 2, 1, 6, 6, 6, 2}));
  EXPECT_EQ(batch.target_ids, (Ids{1, 9, 1, 4, 3, 6, 1}));
  EXPECT_EQ(batch.labels, (Ids{9, 2, 4, 3, 6, 2, 2}));
  EXPECT_EQ(batch.source.first, (Ids{0, 4, 7}));
  EXPECT_EQ(batch.source.length, (PooledVector<int32_t>{4, 3, 5}));
  EXPECT_EQ(batch.target.first, (Ids{0, 2, 6}));
  EXPECT_EQ(batch.target.length, (PooledVector<int32_t>{2, 4, 1}));
  EXPECT_EQ(batch.source.rows, 12);
  EXPECT_EQ(batch.source.max_length, 5);
  EXPECT_EQ(batch.target_tokens(), 7);
  EXPECT_EQ(batch.pairs, (Ids{40, 2, 11}));
}

TEST(PairBatch, SourcesCanBeBare) {
  const PairBatch batch = pack(kPairs, kNumbers, {.source = false});
  EXPECT_EQ(batch.source_ids, (Ids{7, 8, 5, 6, 6, 6}));
  EXPECT_EQ(batch.source.length, (PooledVector<int32_t>{2, 1, 3}));
  EXPECT_EQ(batch.target_ids, (Ids{1, 9, 1, 4, 3, 6, 1}));
  EXPECT_EQ(source_rows(kPairs[0], {}), 4);
  EXPECT_EQ(source_rows(kPairs[0], {.source = false}), 2);
  EXPECT_EQ(target_rows(kPairs[1], {}), 4);
}

TEST(PairBatch, TargetsCanEndWithoutAMark) {
  const Marks marks{.end = false};
  const PairBatch batch = pack({kPairs, 2}, {kNumbers, 2}, marks);
  EXPECT_EQ(batch.source_ids, (Ids{1, 7, 8, 2, 1, 5, 2}));
  EXPECT_EQ(batch.target_ids, (Ids{1, 1, 4, 3}));
  EXPECT_EQ(batch.labels, (Ids{9, 4, 3, 6}));
  EXPECT_EQ(batch.target.length, (PooledVector<int32_t>{1, 3}));
  EXPECT_EQ(target_rows(kPairs[1], marks), 3);
  test::expect_error<DataError>([&] { pack(kPairs, kNumbers, marks); }, {"empty target"});
}

TEST(PairBatch, PaddedRowsAreDense) {
  const PairBatch dense = padded(pack(kPairs, kNumbers, {.source = false}));
  EXPECT_EQ(dense.source.rows, 9);
  EXPECT_EQ(dense.source.first, (Ids{0, 3, 6}));
  EXPECT_EQ(dense.source_ids, (Ids{7, 8, 0, 5, 0, 0, 6, 6, 6}));
  EXPECT_EQ(dense.target.rows, 12);
  EXPECT_EQ(dense.target_ids, (Ids{1, 9, 0, 0, 1, 4, 3, 6, 1, 0, 0, 0}));
  EXPECT_EQ(dense.labels, (Ids{9, 2, 0, 0, 4, 3, 6, 2, 2, 0, 0, 0}));
  EXPECT_EQ(dense.target.length, (PooledVector<int32_t>{2, 4, 1}));
  EXPECT_EQ(dense.target_tokens(), 7);
  EXPECT_EQ(padded(dense).source_ids, dense.source_ids);
}

TEST(PairBatch, MayBeEmpty) {
  const PairBatch batch = pack({}, {});
  EXPECT_EQ(batch.size(), 0);
  EXPECT_EQ(padded(batch).source.rows, 0);
  test::expect_error<ShapeError>([] { pack(kPairs, {}); }, {"3 pairs, but 0 numbers"});
}

}  // namespace
}  // namespace heed::data
