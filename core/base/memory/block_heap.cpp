#include <algorithm>

#include <heed/core/base/memory/block_heap.h>

namespace heed {

void BlockHeap::add(void* segment, size_t bytes) {
  blocks_.push_back({static_cast<std::byte*>(segment), bytes, true, true});
}

void* BlockHeap::take(size_t bytes) {
  size_t best = blocks_.size();
  for (size_t i = 0; i < blocks_.size(); ++i)
    if (blocks_[i].free && blocks_[i].bytes >= bytes &&
        (best == blocks_.size() || blocks_[i].bytes < blocks_[best].bytes))
      best = i;
  if (best == blocks_.size()) return nullptr;
  if (const Block whole = blocks_[best]; whole.bytes > bytes) {
    const size_t rest = whole.bytes - bytes;
    blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(best + 1),
                   {whole.data + rest, bytes, true, false});
    blocks_[best++].bytes = rest;
  }
  blocks_[best].free = false;
  return blocks_[best].data;
}

void BlockHeap::give_back(void* taken) noexcept {
  auto block = std::find_if(blocks_.begin(), blocks_.end(),
                            [taken](const Block& candidate) { return candidate.data == taken; });
  block->free = true;
  if (const auto next = block + 1; next != blocks_.end() && next->free && !next->first) {
    block->bytes += next->bytes;
    blocks_.erase(next);
  }
  if (block != blocks_.begin() && (block - 1)->free && !block->first) {
    (block - 1)->bytes += block->bytes;
    blocks_.erase(block);
  }
}

}  // namespace heed
