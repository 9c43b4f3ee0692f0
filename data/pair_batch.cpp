#include <algorithm>
#include <limits>
#include <numeric>

#include <heed/core/base/check.h>
#include <heed/data/pair_batch.h>

namespace heed::data {
namespace {

void append(Sequences& side, int64_t length) {
  HEED_CHECK(length <= std::numeric_limits<int32_t>::max(), DataError, "a sequence of ", length,
             " symbols is too long for a batch");
  side.first.push_back(side.rows);
  side.length.push_back(static_cast<int32_t>(length));
  side.rows += length;
  side.max_length = std::max(side.max_length, static_cast<int32_t>(length));
}

Sequences spread(const Sequences& packed) {
  Sequences dense = packed;
  for (size_t i = 0; i < dense.first.size(); ++i)
    dense.first[i] = static_cast<int64_t>(i) * packed.max_length;
  dense.rows = static_cast<int64_t>(dense.first.size()) * packed.max_length;
  return dense;
}

/// Copies every sequence from its rows in `from` to those in `to`; the other rows hold kPad.
TokenIds move_rows(const TokenIds& ids, const Sequences& from, const Sequences& to) {
  TokenIds moved(static_cast<size_t>(to.rows), kPad);
  for (size_t i = 0; i < from.first.size(); ++i)
    std::copy_n(ids.begin() + from.first[i], from.length[i], moved.begin() + to.first[i]);
  return moved;
}

}  // namespace

int64_t PairBatch::target_tokens() const {
  return std::accumulate(target.length.begin(), target.length.end(), int64_t{0});
}

int64_t source_rows(const Pair& pair, Marks marks) {
  return static_cast<int64_t>(pair.source.size()) + (marks.source ? 2 : 0);
}

int64_t target_rows(const Pair& pair, Marks marks) {
  return static_cast<int64_t>(pair.target.size()) + (marks.end ? 1 : 0);
}

PairBatch pack(std::span<const Pair> pairs, std::span<const int64_t> numbers, Marks marks) {
  HEED_CHECK(pairs.size() == numbers.size(), ShapeError, "pack: ", pairs.size(), " pairs, but ",
             numbers.size(), " numbers");
  PairBatch batch;
  batch.pairs.assign(numbers.begin(), numbers.end());
  for (const Pair& pair : pairs) {
    append(batch.source, source_rows(pair, marks));
    HEED_CHECK(marks.end || !pair.target.empty(), DataError,
               "an empty target without an end mark has nothing to learn");
    append(batch.target, target_rows(pair, marks));
  }
  batch.source_ids.reserve(static_cast<size_t>(batch.source.rows));
  batch.target_ids.reserve(static_cast<size_t>(batch.target.rows));
  batch.labels.reserve(static_cast<size_t>(batch.target.rows));
  for (const Pair& pair : pairs) {
    if (marks.source) batch.source_ids.push_back(kStart);
    batch.source_ids.insert(batch.source_ids.end(), pair.source.begin(), pair.source.end());
    if (marks.source) batch.source_ids.push_back(kEnd);
    batch.target_ids.push_back(kStart);
    batch.target_ids.insert(batch.target_ids.end(), pair.target.begin(), pair.target.end() - !marks.end);
    batch.labels.insert(batch.labels.end(), pair.target.begin(), pair.target.end());
    if (marks.end) batch.labels.push_back(kEnd);
  }
  return batch;
}

PairBatch padded(const PairBatch& batch) {
  PairBatch dense;
  dense.source = spread(batch.source);
  dense.target = spread(batch.target);
  dense.source_ids = move_rows(batch.source_ids, batch.source, dense.source);
  dense.target_ids = move_rows(batch.target_ids, batch.target, dense.target);
  dense.labels = move_rows(batch.labels, batch.target, dense.target);
  dense.pairs = batch.pairs;
  return dense;
}

}  // namespace heed::data
