// How the CPU attention cuts its work: (sequence, head) pairs, blocks of queries and keys, and the memory a
// task works in. attention_path.h has the map.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <heed/core/base/int_math.h>
#include <heed/core/base/segments.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/base/visibility_view.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyChunk = 512;  // keys whose gradients the backward keeps in the cache
constexpr int64_t kKeyBlock = 64;   // a multiple of 8: dropout is drawn for groups of 8 keys

constexpr int64_t kMaxQueryBlocksPerTask = 4;  // for which keys are packed once

constexpr int64_t kVectorBytes = 64;  // of the widest instruction set

/// One sequence and head.
struct BatchHead {
  int64_t sequence, head, key_head;
  int64_t query_first, key_first;  // rows
  int64_t queries, keys;
};

template <class Args>
BatchHead make_batch_head(const Args& args, int64_t sequence, int64_t head) {
  const SegmentsView& s = args.segments;
  return {sequence,
          head,
          head * args.key_heads / args.heads,
          s.query_first[sequence],
          s.key_first[sequence],
          s.query_length[sequence],
          s.key_length[sequence]};
}

/// Number i of all, the heads of a sequence following each other.
template <class Args>
BatchHead batch_head_at(const Args& args, int64_t i) {
  return make_batch_head(args, i / args.heads, i % args.heads);
}

/// Blocks of queries in the longest sequence.
inline int64_t query_blocks(const SegmentsView& segments) {
  return ceil_divide(segments.max_query, kQueryBlock);
}

/// Blocks of queries in a task of AMX, which packs keys once for all: by the shape alone, so that many
/// threads have a task each.
inline int64_t query_blocks_per_task(int64_t batch_heads, int64_t blocks) {
  constexpr int64_t kMinTasks = 16;
  return std::clamp<int64_t>(batch_heads * blocks / kMinTasks, 1,
                             std::min(kMaxQueryBlocksPerTask, std::max<int64_t>(1, blocks)));
}

/// Planes or blocks a range of parallel_for should hold, for `work` multiply-adds in each product. Short ones
/// come in some number, since each prefetches for the next of its range.
inline int64_t attention_grain(int64_t work) {
  const int64_t least = std::max<int64_t>(1, work);
  return std::clamp<int64_t>(50'000 / least, std::clamp<int64_t>(400'000 / least, 1, 8), 64);
}

/// Calls f(row) for each of `rows` rows that lie in no segment.
template <class F>
void for_gap_rows(int64_t count, const int64_t* first, const int32_t* length, int64_t total, int64_t rows,
                  const F& f) {
  if (total == rows) return;
  Workspace<uint8_t> memory(rows);
  uint8_t* const covered = memory.data();
  std::fill_n(covered, rows, uint8_t{0});
  for (int64_t i = 0; i < count; ++i) std::fill_n(covered + first[i], length[i], uint8_t{1});
  for (int64_t row = 0; row < rows; ++row) {
    if (!covered[row]) f(row);
  }
}

/// How the backward divides: a task owns the gradients of some keys, for a run of sequences and key heads.
struct BackwardPlan {
  bool serial_sequences,
      serial_heads;   // one task takes them all in order: they add to the same bias gradient
  int64_t splits;     // of the keys of a sequence
  bool sums_queries;  // gq is summed from parts, one a split

  int64_t sequence_groups(int64_t count) const {
    return serial_sequences ? std::min<int64_t>(1, count) : count;
  }
  int64_t head_groups(int64_t key_heads) const {
    return serial_heads ? std::min<int64_t>(1, key_heads) : key_heads;
  }
};

/// Where a block of scores lies among those of its sequence and head.
struct ScoreBlock {
  int64_t query, queries;  // the first, how many
  int64_t key, keys;
  int64_t vectors;  // that hold the queries
};

/// The keys that each query of a block sees: those with before < key < end, and those with key < global_end.
struct VisibleKeys {
  alignas(64) int32_t before[kQueryBlock], end[kQueryBlock], global_end[kQueryBlock];
  int64_t first_query, count, queries = -1, keys = -1;  // what it was found for
  int64_t first, last;                                  // no query sees a key outside [first, last)
  int64_t widest_first, widest_last;  // of the plain interval: the least before + 1 and the greatest end
  int64_t all_first, all_last;        // every query sees all of [all_first, all_last)
  int64_t global_last;
  int64_t place;  // of the first query on the diagonal
  BlockPatternView blocks;

  /// Of keys [key_begin, key_end) for all queries of the block.
  BlockVisibility block(int64_t key_begin, int64_t key_end) const {
    if (blocks.given()) {
      const BlockVisibility listed = blocks.block(place, place + count, key_begin, key_end);
      if (listed != BlockVisibility::all) return listed;
    }
    if (key_begin >= all_first && key_end <= all_last) return BlockVisibility::all;
    const bool misses = key_end <= widest_first || key_begin >= widest_last;
    return misses && key_begin >= global_last ? BlockVisibility::none : BlockVisibility::some;
  }
};

/// For queries first_query … + count - 1; the arrays are filled up to a whole block. Does nothing
/// if `out` was found for as many already, as it was for the heads and sequences of the same lengths before.
inline void find_visible_keys(const VisibilityView& visibility, const BatchHead& p, int64_t first_query,
                              int64_t count, VisibleKeys& out) {
  if (out.queries == p.queries && out.keys == p.keys && out.first_query == first_query && out.count == count)
    return;
  out.queries = p.queries, out.keys = p.keys, out.first_query = first_query, out.count = count;
  const auto keys = static_cast<int32_t>(p.keys);
  const bool causal = hides_later(visibility.causal), window = visibility.has_window();
  const int64_t diagonal = visibility.diagonal(first_query, p.queries, p.keys);
  out.place = diagonal, out.blocks = visibility.blocks;
  const auto clamp = [keys](int64_t k) { return static_cast<int32_t>(std::clamp<int64_t>(k, 0, keys)); };
  int32_t widest_first = keys, widest_last = 0, all_first = 0, all_last = keys, global_last = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t d = diagonal + i;
    const int32_t causal_end = causal ? clamp(d + 1) : keys;
    const bool windowed = window && !visibility.is_global(d);
    const int32_t begin = windowed && visibility.window_left >= 0 ? clamp(d - visibility.window_left) : 0;
    const int32_t end = windowed && visibility.window_right >= 0
                            ? std::min(causal_end, clamp(d + visibility.window_right + 1))
                            : causal_end;
    const int32_t global_end = windowed ? std::min(causal_end, clamp(visibility.global_tokens)) : 0;
    out.before[i] = begin - 1;
    out.end[i] = end;
    out.global_end[i] = global_end;
    widest_first = std::min(widest_first, begin);
    widest_last = std::max(widest_last, end);
    all_first = std::max(all_first, begin);
    all_last = std::min(all_last, end);
    global_last = std::max(global_last, global_end);
  }
  for (int64_t i = count; i < kQueryBlock; ++i) out.before[i] = keys, out.end[i] = out.global_end[i] = 0;
  out.widest_first = widest_first;
  out.widest_last = widest_last;
  out.all_first = all_first;
  out.all_last = all_last;
  out.global_last = global_last;
  out.first = global_last > 0 ? 0 : widest_first;
  out.last = std::max(widest_last, global_last);
}

/// Bytes from one key to the next in what is kept of a block's dropout: a bit for each query, in whole
/// vectors of any instruction set.
template <class A>
int64_t keep_mask_stride(int64_t max_query) {
  return ceil_divide(std::min(max_query, kQueryBlock), 16) * static_cast<int64_t>(sizeof(A));
}

/// Elements of a row of `width` with room for whole vectors of any instruction set.
constexpr int64_t padded_width(int64_t width, int64_t element) {
  return round_up(width * element, kVectorBytes) / element;
}

/// Working memory of one task, in elements of the accumulator type. Blocks of scores have a row a key and a
/// column a query (`block` of them, so that a vector holds neighbouring queries); all else has a row a token.
template <class A>
struct AttentionScratch {
  int64_t block;           // columns of a block of scores
  int64_t padded;          // width, rounded up to whole vectors
  A *queries, *queries_t;  // scaled; [block, padded] and [padded, block]
  A *gout, *gout_t;        // backward only; likewise
  A *keys, *values;        // [kKeyBlock, padded], where the originals cannot be used as they are
  A *scores, *gscores;     // [kKeyBlock, block]; gscores in the backward only
  A* slopes;               // likewise: of capped scores
  uint8_t* keep_mask;      // [kKeyBlock, keep_mask_stride()], of dropout that the caller does not keep
  A* out;                  // [block, padded]
  A* row[4];               // [block] each: statistics of the queries

  /// Sets the members for vectors of `lanes` lanes; returns how many elements `memory` must have (null: only
  /// that).
  int64_t bind(A* memory, int64_t width, int64_t max_query, int64_t lanes, bool backward) {
    const int64_t unit = std::max<int64_t>(lanes, 4);
    block = round_up(std::min(max_query, kQueryBlock), unit);
    padded = round_up(width, unit);
    int64_t used = 0;
    const auto take = [&](int64_t count) {
      A* const place = memory == nullptr ? nullptr : memory + used;
      used += round_up(count, 128 / static_cast<int64_t>(sizeof(A)));
      return place;
    };
    queries = take(block * padded);
    queries_t = take(block * padded);
    gout = backward ? take(block * padded) : nullptr;
    gout_t = backward ? take(block * padded) : nullptr;
    keys = take(kKeyBlock * padded);
    values = take(kKeyBlock * padded);
    scores = take(kKeyBlock * block);
    gscores = backward ? take(kKeyBlock * block) : nullptr;
    slopes = backward ? take(kKeyBlock * block) : nullptr;
    keep_mask = reinterpret_cast<uint8_t*>(
        take(kKeyBlock * keep_mask_stride<A>(max_query) / static_cast<int64_t>(sizeof(A))));
    out = take(block * padded);
    for (A*& r : row) r = take(block);
    return used;
  }
};

}  // namespace heed::cpu
