// Which keys a query may attend to, as a rule on positions inside the sequence.
#pragma once

#include <cstdint>

#include <heed/core/base/host_device.h>

namespace heed {

/// Whether a query sees the keys after its own place, the diagonal, and how that lies when a sequence has
/// different numbers of queries and keys.
enum class Causal : uint8_t {
  none,               // query i stands on key i, and sees keys after it too
  top_left,           // query i sees keys 0 .. i
  none_bottom_right,  // the last query stands on the last key, query i on key i + (keys - queries), as where
                      // the first keys come from a cache; it sees keys after that too
  bottom_right        // the same place, and no key after it: the last query sees every key
};

/// Whether a rule hides what comes after the diagonal, and whether that ends at the last key.
HEED_HOST_DEVICE constexpr bool hides_later(Causal rule) {
  return rule == Causal::top_left || rule == Causal::bottom_right;
}
HEED_HOST_DEVICE constexpr bool is_bottom_right(Causal rule) { return rule >= Causal::none_bottom_right; }

/// How much of a block of queries and keys is visible. `some` has to be asked pair by pair.
enum class BlockVisibility : uint8_t { none, some, all };

/// A key is visible if the causal rule allows it and, where a window is set, it lies within the window or the
/// key or the query is a global token. All goes by the query's place on the diagonal: whether it is a global
/// token, and from where windows, and biases by distance, are measured.
struct Visibility {
  Causal causal = Causal::none;
  int32_t window_left = -1;   // keys before the diagonal that stay visible; -1: all
  int32_t window_right = -1;  // keys after it; -1: all
  int32_t dilation = 1;       // inside a window only every dilation-th key from the diagonal is visible
  int32_t global_tokens = 0;  // the first global_tokens keys are visible to all, and queries in their places
                              // see all keys, as far as the causal rule allows

  friend bool operator==(const Visibility&, const Visibility&) = default;

  HEED_HOST_DEVICE bool has_window() const { return window_left >= 0 || window_right >= 0 || dilation > 1; }

  /// The key position that query q stands on.
  HEED_HOST_DEVICE int64_t diagonal(int64_t q, int64_t queries, int64_t keys) const {
    return is_bottom_right(causal) ? q + keys - queries : q;
  }

  /// Whether a place is a global token's; none before the first key is. Lengths are 32-bit.
  HEED_HOST_DEVICE bool is_global(int64_t place) const {
    return static_cast<uint32_t>(place) < static_cast<uint32_t>(global_tokens);
  }
  /// Whether one of the places [p0, p1) is.
  HEED_HOST_DEVICE bool has_global(int32_t p0, int32_t p1) const {
    return (p0 > 0 ? p0 : 0) < (p1 < global_tokens ? p1 : global_tokens);
  }

  HEED_HOST_DEVICE bool visible(int64_t q, int64_t k, int64_t queries, int64_t keys) const {
    // Lengths are 32-bit, and so are the registers of a GPU.
    const auto place = static_cast<int32_t>(diagonal(q, queries, keys)),
               distance = static_cast<int32_t>(k) - place;
    if (hides_later(causal) && distance > 0) return false;
    if (!has_window() || k < global_tokens || is_global(place)) return true;
    if (window_left >= 0 && distance < -window_left) return false;
    if (window_right >= 0 && distance > window_right) return false;
    return dilation <= 1 || distance % dilation == 0;
  }

  /// Of queries [q0, q1) and keys [k0, k1), neither empty. `some` is a safe answer, and may stand for others.
  HEED_HOST_DEVICE BlockVisibility block(int64_t q0, int64_t q1, int64_t k0, int64_t k1, int64_t queries,
                                         int64_t keys) const {
    const int64_t first = diagonal(q0, queries, keys), end = first + q1 - q0, nearest = k0 - (end - 1),
                  farthest = k1 - 1 - first;
    if (hides_later(causal) && nearest > 0) return BlockVisibility::none;
    const bool below = !hides_later(causal) || farthest <= 0;
    if (!has_window()) return below ? BlockVisibility::all : BlockVisibility::some;
    if (k0 >= global_tokens && !has_global(static_cast<int32_t>(first), static_cast<int32_t>(end)) &&
        ((window_left >= 0 && farthest < -static_cast<int64_t>(window_left)) ||
         (window_right >= 0 && nearest > window_right)))
      return BlockVisibility::none;
    const bool inside = dilation <= 1 && (window_left < 0 || nearest >= -static_cast<int64_t>(window_left)) &&
                        (window_right < 0 || farthest <= window_right);
    return below && inside ? BlockVisibility::all : BlockVisibility::some;
  }

  /// One past the last key that query q can see: keys from here on need no work.
  HEED_HOST_DEVICE int64_t key_end(int64_t q, int64_t queries, int64_t keys) const {
    int64_t end = keys;
    const int64_t d = diagonal(q, queries, keys);
    if (hides_later(causal) && d + 1 < end) end = d + 1;
    if (window_right >= 0 && !is_global(d)) {
      int64_t limit = d + window_right + 1;
      if (limit < global_tokens) limit = global_tokens;
      if (limit < end) end = limit;
    }
    return end < 0 ? 0 : end;
  }

  /// The first key that query q can see, ignoring holes after it.
  HEED_HOST_DEVICE int64_t key_begin(int64_t q, int64_t queries, int64_t keys) const {
    if (window_left < 0 || global_tokens > 0) return 0;
    const int64_t begin = diagonal(q, queries, keys) - window_left;
    return begin < 0 ? 0 : begin;
  }
};

}  // namespace heed
