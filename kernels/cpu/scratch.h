// Working memory of the CPU kernels. It comes from cpu_allocator(), so a training loop soon stops asking the
// system for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <heed/core/base/allocator.h>

namespace heed::cpu {

/// `count` elements of T, not initialised, aligned to 128 bytes; given back at the end of the scope.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : bytes_(static_cast<size_t>(count) * sizeof(T)),
        data_(static_cast<T*>(cpu_allocator().allocate(bytes_))) {}
  ~Scratch() { cpu_allocator().deallocate(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }
  void zero() const { std::memset(data_, 0, bytes_); }

 private:
  size_t bytes_;
  T* data_;
};

}  // namespace heed::cpu
