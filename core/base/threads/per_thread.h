// Objects that each thread has for itself. Private to heed: not installed.
#pragma once

namespace heed::detail {

/// Whether the calling thread is ending and its own objects are gone, as when static objects are destroyed.
/// For the main thread, and others that have called parallel_for.
bool thread_ended();

/// A T for each thread, made when the thread first asks and destroyed when it ends. What is destroyed later,
/// as static objects are, may ask too and gets null: a plain thread_local would be used after its end.
template <class T>
class PerThread {
 public:
  static T* get() {
    if (slot_.object == nullptr && !slot_.ended) begin();
    return slot_.object;
  }

 private:
  struct Slot {  // not destroyed
    T* object = nullptr;
    bool ended = false;
  };
  struct Owner {
    T object;
    Owner() { slot_.object = &object; }
    ~Owner() { slot_ = {nullptr, true}; }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
  };
  [[gnu::noinline]] static void begin() { thread_local Owner owner; }

  static inline constinit thread_local Slot slot_;
};

}  // namespace heed::detail
