// A std::vector whose memory comes from heed's CPU allocator, for what is built again in every step.
#pragma once

#include <vector>

#include <heed/core/base/memory/allocator.h>

namespace heed {

template <class T>
struct PoolAllocator {
  using value_type = T;

  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) noexcept {}

  T* allocate(size_t count) { return static_cast<T*>(cpu_allocator().allocate(count * sizeof(T))); }
  void deallocate(T* pointer, size_t count) noexcept {
    cpu_allocator().deallocate(pointer, count * sizeof(T));
  }

  friend bool operator==(const PoolAllocator&, const PoolAllocator&) { return true; }
};

template <class T>
using PooledVector = std::vector<T, PoolAllocator<T>>;

}  // namespace heed
