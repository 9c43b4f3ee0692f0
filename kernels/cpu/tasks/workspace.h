// Scratch memory for the length of a kernel call.
#pragma once

#include <cstdint>

#include <heed/core/base/memory/allocator.h>

namespace heed::cpu {

/// Room for `count` elements, uninitialised, from cpu_allocator(); null if count is 0.
template <class T>
class Workspace {
 public:
  explicit Workspace(int64_t count) : bytes_(static_cast<size_t>(count) * sizeof(T)) {
    if (bytes_ > 0) data_ = static_cast<T*>(cpu_allocator().allocate(bytes_));
  }
  ~Workspace() {
    if (data_ != nullptr) cpu_allocator().deallocate(data_, bytes_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  size_t bytes_;
};

}  // namespace heed::cpu
