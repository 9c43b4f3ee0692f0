// The functions that code compiled with -fsanitize=thread,alignment calls. No sanitizer library is linked;
// this file is compiled without -fsanitize. What host code of the same source files does is ignored.
#include <cstdint>
#include <cstring>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/race/checker.h>

namespace heed::emulator {
namespace {

Checker& checker() {
  static Checker* const only = new Checker;  // never destroyed: statics may still free device memory
  return *only;
}

struct Install {
  Install() { monitor = &checker(); }
} install;

inline void seen(const void* address, size_t bytes, bool write, const void* return_address) {
  if (machine.current == nullptr || !on_fiber_stack(__builtin_frame_address(0))) return;
  checker().instrumented(address, bytes, write, return_address);
}

}  // namespace
}  // namespace heed::emulator

using heed::emulator::seen;

#define HEED_ACCESS(name, bytes, write) \
  void name(void* address) { seen(address, bytes, write, __builtin_return_address(0)); }
#define HEED_ACCESSES(bytes)                              \
  HEED_ACCESS(__tsan_read##bytes, bytes, false)           \
  HEED_ACCESS(__tsan_write##bytes, bytes, true)           \
  HEED_ACCESS(__tsan_unaligned_read##bytes, bytes, false) \
  HEED_ACCESS(__tsan_unaligned_write##bytes, bytes, true) \
  HEED_ACCESS(__tsan_volatile_read##bytes, bytes, false)  \
  HEED_ACCESS(__tsan_volatile_write##bytes, bytes, true)

// Host code of a kernel source may use C++ atomics (reference counts); they are just performed.
#define HEED_ATOMICS(bits)                                                                                \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* p, int) {                      \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                       \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* p, uint##bits##_t v, int) {                   \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                             \
  }                                                                                                       \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* p, uint##bits##_t v, int) {      \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                       \
  uint##bits##_t __tsan_atomic##bits##_fetch_add(volatile uint##bits##_t* p, uint##bits##_t v, int) {     \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                       \
  uint##bits##_t __tsan_atomic##bits##_fetch_sub(volatile uint##bits##_t* p, uint##bits##_t v, int) {     \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                       \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t* p, uint##bits##_t* expected, \
                                                    uint##bits##_t v, int, int) {                         \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
  }                                                                                                       \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t* p, uint##bits##_t* expected,   \
                                                  uint##bits##_t v, int, int) {                           \
    return __atomic_compare_exchange_n(p, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
  }

extern "C" {

HEED_ACCESSES(1)
HEED_ACCESSES(2)
HEED_ACCESSES(4)
HEED_ACCESSES(8)
HEED_ACCESSES(16)
HEED_ATOMICS(8)
HEED_ATOMICS(32)
HEED_ATOMICS(64)

void __tsan_read_range(void* address, size_t bytes) {
  seen(address, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t bytes) {
  seen(address, bytes, true, __builtin_return_address(0));
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  seen(from, bytes, false, __builtin_return_address(0));
  seen(to, bytes, true, __builtin_return_address(0));
  return memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  seen(from, bytes, false, __builtin_return_address(0));
  seen(to, bytes, true, __builtin_return_address(0));
  return memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  seen(to, bytes, true, __builtin_return_address(0));
  return memset(to, value, bytes);
}

// -fsanitize=alignment
struct TypeMismatch {
  const char* file;
  uint32_t line, column;
  const void* type;
  unsigned char log_alignment, kind;
};

void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, void* pointer) {
  const heed::emulator::Location at{data->file, static_cast<int>(data->line)};
  if (pointer == nullptr) heed::emulator::fail("null pointer access", at);
  const uintptr_t alignment = uintptr_t{1} << data->log_alignment;
  heed::emulator::fail("misaligned access: the address is " +
                           std::to_string(reinterpret_cast<uintptr_t>(pointer) % alignment) +
                           " bytes past a multiple of " + std::to_string(alignment),
                       at);
}
void __ubsan_handle_type_mismatch_v1_abort(TypeMismatch* data, void* pointer) {
  __ubsan_handle_type_mismatch_v1(data, pointer);
}

}  // extern "C"
