// Which keys a query may attend to, as kernels ask it: by a rule, and by a pattern of blocks.
#pragma once

#include <cstdint>

#include <heed/core/base/host_device.h>
#include <heed/core/base/visibility.h>

namespace heed {

inline constexpr int kPatternBlock = 64;  // queries, and keys, of a block of a pattern

/// A bit for each block of 64 positions of queries by 64 keys, set where it is visible, twice: a line for
/// each block of queries, and one for each of keys. Bit i of a line is bit i % 32 of its word i / 32. The
/// arrays lie in the memory of the device that the kernel runs on. What lies outside of the blocks is hidden.
struct BlockPatternView {
  const uint32_t* of_queries = nullptr;  // [query_blocks, words(key_blocks)]; null: all is visible
  const uint32_t* of_keys = nullptr;     // [key_blocks, words(query_blocks)]
  int32_t query_blocks = 0, key_blocks = 0;

  HEED_HOST_DEVICE bool given() const { return of_queries != nullptr; }

  HEED_HOST_DEVICE static int32_t words(int32_t blocks) { return (blocks + 31) / 32; }

  /// Whether the block of a position and a key is visible.
  HEED_HOST_DEVICE bool holds(int32_t position, int32_t key) const {
    const int32_t line = position / kPatternBlock, block = key / kPatternBlock;
    if (position < 0 || line >= query_blocks || block >= key_blocks) return false;
    return of_queries[int64_t{line} * words(key_blocks) + block / 32] >> (block % 32) & 1;
  }

  /// Of positions [p0, p1) and keys [k0, k1), neither empty.
  HEED_HOST_DEVICE BlockVisibility block(int64_t p0, int64_t p1, int64_t k0, int64_t k1) const {
    bool any = false, all = p0 >= 0 && p1 <= int64_t{kPatternBlock} * query_blocks &&
                            k1 <= int64_t{kPatternBlock} * key_blocks;
    const int32_t keys_end = end_of(k1, key_blocks);
    for (int32_t i = first_of(p0); i < end_of(p1, query_blocks); ++i)
      for (int32_t j = first_of(k0); j < keys_end; ++j) {
        const bool seen = of_queries[int64_t{i} * words(key_blocks) + j / 32] >> (j % 32) & 1;
        any |= seen;
        all &= seen;
      }
    return !any ? BlockVisibility::none : all ? BlockVisibility::all : BlockVisibility::some;
  }

  /// The first key from `key` on that some of positions [p0, p1) see; past the last block if none does.
  HEED_HOST_DEVICE int32_t next_key(int32_t p0, int32_t p1, int32_t key) const {
    return next(of_queries, first_of(p0), end_of(p1, query_blocks), key_blocks, key);
  }

  /// The first position from `position` on that sees some of keys [k0, k1); likewise.
  HEED_HOST_DEVICE int32_t next_position(int32_t k0, int32_t k1, int32_t position) const {
    return next(of_keys, first_of(k0), end_of(k1, key_blocks), query_blocks, position);
  }

 private:
  HEED_HOST_DEVICE static int32_t first_of(int64_t place) {
    return place < 0 ? 0 : static_cast<int32_t>(place / kPatternBlock);
  }
  HEED_HOST_DEVICE static int32_t end_of(int64_t place, int32_t blocks) {
    if (place <= 0) return 0;
    const auto end = static_cast<int32_t>((place + kPatternBlock - 1) / kPatternBlock);
    return end < blocks ? end : blocks;
  }

  HEED_HOST_DEVICE static int32_t next(const uint32_t* lines, int32_t begin, int32_t end, int32_t blocks,
                                       int32_t from) {
    int32_t block = first_of(from);
    while (block < blocks) {
      uint32_t seen = 0;
      for (int32_t line = begin; line < end; ++line)
        seen |= lines[int64_t{line} * words(blocks) + block / 32];
      seen >>= block % 32;
      if (seen & 1) break;
      block = seen == 0 ? (block / 32 + 1) * 32 : block + 1;
    }
    const int32_t found = block * kPatternBlock;
    return found > from ? found : from;
  }
};

/// A rule and a pattern: a query sees a key where both say so; visible() and block() are of the rule alone.
/// The pattern's blocks of queries are blocks of places on the diagonal, so that a query that follows keys of
/// a cache sees what it sees without one.
struct VisibilityView : Visibility {
  BlockPatternView blocks;

  VisibilityView() = default;
  HEED_HOST_DEVICE VisibilityView(const Visibility& rule, const BlockPatternView& pattern = {})
      : Visibility(rule), blocks(pattern) {}

  HEED_HOST_DEVICE bool sees(int64_t q, int64_t k, int64_t queries, int64_t keys) const {
    if (!visible(q, k, queries, keys)) return false;
    return !blocks.given() ||
           blocks.holds(static_cast<int32_t>(diagonal(q, queries, keys)), static_cast<int32_t>(k));
  }

  /// How many keys query q sees. Holes in a dilated window count, and blocks of a pattern count whole.
  HEED_HOST_DEVICE int64_t keys_seen(int32_t q, int32_t queries, int32_t keys) const {
    const int64_t end = key_end(q, queries, keys);
    int64_t seen = 0;
    if (blocks.given()) {
      for (int32_t key = next_key(q, q + 1, 0, kPatternBlock, queries, keys); key < end;
           key = next_key(q, q + 1, key + kPatternBlock, kPatternBlock, queries, keys))
        seen += end - key < kPatternBlock ? end - key : kPatternBlock;
      return seen;
    }
    const int64_t place = diagonal(q, queries, keys);
    int64_t begin = 0;
    if (window_left >= 0 && !is_global(place)) begin = place - window_left;
    if (begin < 0) begin = 0;
    if (end > begin) seen = end - begin;
    const int64_t before = begin < global_tokens ? begin : global_tokens;
    return seen + (before < end ? before : end);
  }

  // Lengths have 32 bits, and so have the registers of a GPU.

  /// Where a walk over keys in steps of `step`, which is at `key`, finds the next that some of queries
  /// [q0, q1) may see: a multiple of `step` further on, or `keys` or more if there is none. Steps that are
  /// hidden whole are left out, but for few; `step` divides 64.
  HEED_HOST_DEVICE int32_t next_key(int32_t q0, int32_t q1, int32_t key, int32_t step, int32_t queries,
                                    int32_t keys) const {
    const auto first = static_cast<int32_t>(diagonal(q0, queries, keys)), end = first + q1 - q0;
    const bool windowed = has_window() && !has_global(first, end);
    if (windowed && window_left >= 0 && key >= global_tokens && first - key > window_left)
      key += (first - key - window_left) / step * step;
    if (blocks.given()) key = blocks.next_key(first, end, key);
    const bool after = (hides_later(causal) && key >= end) ||
                       (windowed && window_right >= 0 && key >= global_tokens && key - end >= window_right);
    return after ? keys : key;
  }

  /// Likewise for queries, at `query`, that may see some of keys [k0, k1).
  HEED_HOST_DEVICE int32_t next_query(int32_t k0, int32_t k1, int32_t query, int32_t step, int32_t queries,
                                      int32_t keys) const {
    const auto shift = static_cast<int32_t>(diagonal(0, queries, keys));
    const bool windowed = has_window() && k0 >= global_tokens;
    int32_t place = query + shift;
    const int32_t from = place;
    if (hides_later(causal) && k0 > place) place = k0;
    if (windowed && window_right >= 0 && k0 - place > window_right && place >= global_tokens)
      place = k0 - window_right;
    if (blocks.given()) place = blocks.next_position(k0, k1, place);
    query += (place - from) / step * step;
    const bool after = windowed && window_left >= 0 && query + shift - k1 >= window_left;
    return after ? queries : query;
  }
};

}  // namespace heed
