// Sparse attention by blocks: which blocks of queries and keys are computed at all.
#pragma once

#include <cstdint>
#include <memory>

#include <heed/core/base/visibility_view.h>
#include <heed/core/generator.h>
#include <heed/core/tensor.h>

namespace heed {

/// Which blocks of 64 queries by 64 keys attention computes. What is outside is hidden as by a mask, but
/// takes no time: an attention takes time by the blocks there are, and memory by its rows. One pattern is for
/// all heads and sequences, in positions inside the sequence; a causal rule, a window or a mask hides more
/// within the blocks. Immutable, and copies share: make one for many calls. Two bits a block are kept on each
/// device.
class BlockPattern {
 public:
  static constexpr int64_t kBlock = kPatternBlock;

  /// Every block.
  BlockPattern() = default;
  /// seen: bool [query blocks, key blocks] on any device. Element (i, j), where it is true, is queries that
  /// stand on the diagonal at 64 i … 64 i + 63 and keys 64 j … 64 j + 63. DTypeError, ShapeError.
  explicit BlockPattern(const Tensor& seen);

  /// Whether there is a pattern.
  bool defined() const { return state_ != nullptr; }
  int64_t query_blocks() const;
  int64_t key_blocks() const;

  /// The bits in the memory of `device`, copied there on first use.
  BlockPatternView view(Device device) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Blocks of 64 that `length` positions take.
constexpr int64_t pattern_blocks(int64_t length) {
  return (length + BlockPattern::kBlock - 1) / BlockPattern::kBlock;
}

// Parts of patterns, bool [blocks, blocks]: or of several, a part by logical_or, is a pattern.

/// Blocks that hold a pair that the rule shows, of `length` queries and keys: a window, a dilated one and
/// global tokens (Longformer, Beltagy et al., arXiv 2004.05150). ConfigError for a negative length.
Tensor visible_blocks(const Visibility& rule, int64_t length);
/// `count` blocks of keys for each block of queries, drawn without repetition; of a causal pattern from those
/// that are not later. With visible_blocks() of a window with global tokens: BigBird (Zaheer et al., arXiv
/// 2007.14062). ConfigError for negative numbers.
Tensor random_blocks(int64_t blocks, int64_t count, bool causal, Generator& generator = default_generator());
/// Blocks at multiples of `stride` from the diagonal. With visible_blocks() of a window: the strided pattern
/// of the Sparse Transformer (Child et al., arXiv 1904.10509). ConfigError for a stride below 1.
Tensor strided_blocks(int64_t blocks, int64_t stride);

}  // namespace heed
