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

/// A key is visible if the causal rule allows it and, where a window is set, it lies within the window or is
/// one of the global tokens. Windows, and biases by distance, are measured from the query's own place on the
/// diagonal.
struct Visibility {
  Causal causal = Causal::none;
  int32_t window_left = -1;   // keys before the diagonal that stay visible; -1: all
  int32_t window_right = -1;  // keys after it; -1: all
  int32_t dilation = 1;       // inside a window only every dilation-th key from the diagonal is visible
  int32_t global_tokens = 0;  // the first global_tokens keys are visible to all, and their queries see all
                              // keys that the causal rule allows

  friend bool operator==(const Visibility&, const Visibility&) = default;

  HEED_HOST_DEVICE bool has_window() const { return window_left >= 0 || window_right >= 0 || dilation > 1; }

  /// The key position that query q stands on.
  HEED_HOST_DEVICE int64_t diagonal(int64_t q, int64_t queries, int64_t keys) const {
    return is_bottom_right(causal) ? q + keys - queries : q;
  }

  HEED_HOST_DEVICE bool visible(int64_t q, int64_t k, int64_t queries, int64_t keys) const {
    const int64_t distance = k - diagonal(q, queries, keys);
    if (hides_later(causal) && distance > 0) return false;
    if (!has_window() || k < global_tokens || q < global_tokens) return true;
    if (window_left >= 0 && distance < -static_cast<int64_t>(window_left)) return false;
    if (window_right >= 0 && distance > window_right) return false;
    // Lengths are 32-bit, and a 64-bit remainder is a call on a GPU.
    return dilation <= 1 || static_cast<int32_t>(distance) % dilation == 0;
  }

  /// Of queries [q0, q1) and keys [k0, k1), neither empty. `some` is a safe answer, and may stand for others.
  HEED_HOST_DEVICE BlockVisibility block(int64_t q0, int64_t q1, int64_t k0, int64_t k1, int64_t queries,
                                         int64_t keys) const {
    const int64_t nearest = k0 - diagonal(q1 - 1, queries, keys),
                  farthest = k1 - 1 - diagonal(q0, queries, keys);
    if (hides_later(causal) && nearest > 0) return BlockVisibility::none;
    const bool below = !hides_later(causal) || farthest <= 0;
    if (!has_window()) return below ? BlockVisibility::all : BlockVisibility::some;
    if (q0 >= global_tokens && k0 >= global_tokens &&
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
    if (window_right >= 0 && q >= global_tokens) {
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
