// Intrusive reference counting for the objects behind tensors.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace heed {

/// Base of objects shared through RefPtr<T>. A new one belongs to the RefPtr that it is given to first;
/// destroy() is called when the last goes.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const noexcept {
    // The only owner is spared the atomic write: nobody else can retain what nobody else has.
    if (unique() || count_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      const_cast<RefCounted*>(this)->destroy();
  }
  bool unique() const noexcept { return count_.load(std::memory_order_acquire) == 1; }

 protected:
  virtual void destroy() noexcept { delete this; }

 private:
  mutable std::atomic<int32_t> count_{1};
};

/// A counted pointer; null by default.
template <class T>
class RefPtr {
 public:
  RefPtr() = default;
  /// Takes over a new object.
  explicit RefPtr(T* object) noexcept : object_(object) {}
  RefPtr(const RefPtr& other) noexcept : object_(other.object_) { retain(); }
  RefPtr(RefPtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  RefPtr(const RefPtr<U>& other) noexcept : object_(other.get()) {
    retain();
  }
  template <class U>
  RefPtr(RefPtr<U>&& other) noexcept : object_(other.take()) {}
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~RefPtr() {
    if (object_) object_->release();
  }

  T* get() const noexcept { return object_; }
  /// Gives the object and its count away.
  T* take() noexcept { return std::exchange(object_, nullptr); }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const RefPtr& a, const RefPtr& b) { return a.object_ == b.object_; }

 private:
  void retain() const noexcept {
    if (object_) object_->retain();
  }

  T* object_ = nullptr;
};

template <class T, class... Args>
RefPtr<T> make_ref(Args&&... args) {
  return RefPtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace heed
