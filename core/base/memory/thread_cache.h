// What a thread of the CPU keeps of the blocks that it freed. Private to core: not installed.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include <heed/core/base/memory/size_class.h>

namespace heed {

constexpr size_t kThreadBytes = size_t{1} << 16;  // the largest block that a thread keeps for itself
constexpr size_t kThreadClasses = size_class(kThreadBytes).index + 1;
constexpr int64_t kThreadLimit = int64_t{1} << 20;  // bytes that a thread keeps at most

/// Blocks of the CPU that the thread which freed them keeps for its next requests: threads that work side by
/// side do not wait for each other's locks. Others read the counts, hence the atomics; only the thread itself
/// writes.
struct ThreadCache {
  struct Free {
    Free* next;
  };
  Free* lists[kThreadClasses] = {};
  std::atomic<int64_t> kept{0};      // bytes
  std::atomic<int64_t> requests{0};  // that were met from here
  ThreadCache* next = nullptr;       // of another thread

  static void add(std::atomic<int64_t>& count, int64_t by) {
    count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  void* take(SizeClass size) {
    Free* const block = lists[size.index];
    if (block == nullptr) return nullptr;
    lists[size.index] = block->next;
    add(kept, -static_cast<int64_t>(size.bytes));
    add(requests, 1);
    return block;
  }

  bool keep(void* pointer, SizeClass size) {
    if (kept.load(std::memory_order_relaxed) + static_cast<int64_t>(size.bytes) > kThreadLimit) return false;
    lists[size.index] = new (pointer) Free{lists[size.index]};
    add(kept, static_cast<int64_t>(size.bytes));
    return true;
  }
};

}  // namespace heed
