// Shared memory as kernels take it, and checked loads and stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <heed/kernels/simt/host/builtins.h>

namespace heed::emulator {

void* static_shared(const void* key, size_t bytes, size_t alignment, Location at);
void* dynamic_shared(Location at);
void* take_shared(size_t* layout_end, size_t bytes, size_t alignment, Location at);
uint32_t shared_address(const void* pointer, Location at);

/// Fails on a misaligned address, on one out of bounds where AddressSanitizer or the race checker knows, and
/// tells the race checker of the access.
void check_access(const void* address, size_t bytes, size_t alignment, bool write, const char* what,
                  Location at);
/// Fails on an address in shared memory.
void check_global(const void* address, const char* what, Location at);

template <class T>
struct TypeKey {
  static inline char key;
};

}  // namespace heed::emulator

namespace heed::simt {

template <class T>
T& shared(HEED_SIMT_AT) {
  static_assert(std::is_trivially_destructible_v<T>);
  return *static_cast<T*>(emulator::static_shared(&emulator::TypeKey<T>::key, sizeof(T), alignof(T), at));
}

template <int kAlignment = 128>
unsigned char* dynamic_shared(HEED_SIMT_AT) {
  return static_cast<unsigned char*>(emulator::dynamic_shared(at));
}

template <int kAlignment = 128>
class Arena {
 public:
  template <class T>
  T* take(size_t count, size_t alignment = alignof(T), HEED_SIMT_AT) {
    if (alignment > kAlignment) emulator::fail("Arena::take: the alignment exceeds the arena's", at);
    return static_cast<T*>(emulator::take_shared(&end_, count * sizeof(T), alignment, at));
  }

 private:
  size_t end_ = 0;
};

inline uint32_t shared_address(const void* pointer, HEED_SIMT_AT) {
  return emulator::shared_address(pointer, at);
}

template <class V, class T>
V load_as(const T* address, HEED_SIMT_AT) {
  emulator::check_access(address, sizeof(V), alignof(V), false, "vector load", at);
  V value;
  memcpy(&value, address, sizeof value);
  return value;
}

template <class V, class T>
void store_as(T* address, const V& value, HEED_SIMT_AT) {
  emulator::check_global(address, "vector store", at);
  emulator::check_access(address, sizeof(V), alignof(V), true, "vector store", at);
  memcpy(static_cast<void*>(address), &value, sizeof value);
}

}  // namespace heed::simt

#define HEED_SIMT_LOAD(name)                                                        \
  template <class T>                                                                \
  T name(const T* address, HEED_SIMT_AT) {                                          \
    heed::emulator::check_access(address, sizeof(T), alignof(T), false, #name, at); \
    return *address;                                                                \
  }
HEED_SIMT_LOAD(__ldg)
HEED_SIMT_LOAD(__ldcg)
HEED_SIMT_LOAD(__ldca)
HEED_SIMT_LOAD(__ldcs)
HEED_SIMT_LOAD(__ldlu)
HEED_SIMT_LOAD(__ldcv)
#undef HEED_SIMT_LOAD

#define HEED_SIMT_STORE(name)                                                      \
  template <class T>                                                               \
  void name(T* address, std::type_identity_t<T> value, HEED_SIMT_AT) {             \
    heed::emulator::check_access(address, sizeof(T), alignof(T), true, #name, at); \
    *address = value;                                                              \
  }
HEED_SIMT_STORE(__stcg)
HEED_SIMT_STORE(__stcs)
HEED_SIMT_STORE(__stwb)
HEED_SIMT_STORE(__stwt)
#undef HEED_SIMT_STORE
