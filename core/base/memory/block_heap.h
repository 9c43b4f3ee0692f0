// Blocks of any size, cut from a few large segments of memory and joined again. Private to core: not
// installed.
#pragma once

#include <cstddef>
#include <vector>

namespace heed {

/// Which parts of its segments are free. It never touches their memory, which may be a device's, and knows
/// nothing of where they come from. Not thread-safe.
class BlockHeap {
 public:
  /// A segment to cut blocks from. std::bad_alloc, with nothing changed.
  void add(void* segment, size_t bytes);

  /// The end of the smallest free block that has `bytes`, of several the one in the segment that was added
  /// first, so that what was never used stays so. Null if none has as many. std::bad_alloc, with nothing
  /// changed.
  void* take(size_t bytes);

  /// Takes back what take() gave, of which free neighbours become part.
  void give_back(void* block) noexcept;

  /// Calls release(segment, bytes) for each segment of which nothing is taken, and forgets it, and
  /// discard(block, bytes) for each free part of another.
  template <class Release, class Discard>
  void release_unused(Release&& release, Discard&& discard) noexcept {
    for (size_t i = 0; i < blocks_.size();) {
      const Block block = blocks_[i];
      if (block.free && begins_segment(i) && begins_segment(i + 1)) {
        release(block.data, block.bytes);
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      if (block.free) discard(block.data, block.bytes);
      ++i;
    }
  }

 private:
  struct Block {
    std::byte* data;
    size_t bytes;
    bool free;
    bool first;  // of its segment
  };

  bool begins_segment(size_t i) const { return i == blocks_.size() || blocks_[i].first; }

  // By their segments' age, then by address: neighbours stand beside each other. A training step has some
  // hundreds of large blocks at most, and a look at all of them takes less time than the least work on one.
  std::vector<Block> blocks_;
};

}  // namespace heed
