// Atomic operations. One OS thread runs the whole grid, so they are plain; the race checker is told that they
// are not.
#pragma once

#include <cstring>
#include <type_traits>

#include <heed/kernels/simt/host/memory.h>

namespace heed::emulator {
/// Checks the address like check_access, and orders the access with other atomic ones.
void check_atomic(void* address, size_t bytes, const char* what, Location at);
}  // namespace heed::emulator

namespace heed::emulator {
/// What sums are formed in: integers wrap.
template <class T>
using Wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
}  // namespace heed::emulator

#define HEED_SIMT_ATOMIC(name, expression)                                                           \
  template <class T>                                                                                 \
  __attribute__((no_sanitize("thread"), noinline)) T name(T* address, std::type_identity_t<T> value, \
                                                          HEED_SIMT_AT) {                            \
    heed::emulator::check_atomic(address, sizeof(T), #name, at);                                     \
    const T old = *address;                                                                          \
    const T fresh = static_cast<T>(expression);                                                      \
    *address = fresh;                                                                                \
    if (memcmp(static_cast<const void*>(&old), static_cast<const void*>(&fresh), sizeof(T)) != 0)    \
      heed::emulator::progress();                                                                    \
    return old;                                                                                      \
  }
HEED_SIMT_ATOMIC(atomicAdd, heed::emulator::Wrapping<T>(old) + heed::emulator::Wrapping<T>(value))
HEED_SIMT_ATOMIC(atomicSub, heed::emulator::Wrapping<T>(old) - heed::emulator::Wrapping<T>(value))
HEED_SIMT_ATOMIC(atomicExch, value)
HEED_SIMT_ATOMIC(atomicMax, old < value ? value : old)
HEED_SIMT_ATOMIC(atomicMin, value < old ? value : old)
HEED_SIMT_ATOMIC(atomicAnd, old& value)
HEED_SIMT_ATOMIC(atomicOr, old | value)
HEED_SIMT_ATOMIC(atomicXor, old ^ value)
HEED_SIMT_ATOMIC(atomicInc, old >= value ? T(0) : old + 1)
HEED_SIMT_ATOMIC(atomicDec, old == T(0) || old > value ? value : old - 1)
#undef HEED_SIMT_ATOMIC

template <class T>
__attribute__((no_sanitize("thread"), noinline)) T atomicCAS(T* address, std::type_identity_t<T> expected,
                                                             std::type_identity_t<T> value, HEED_SIMT_AT) {
  heed::emulator::check_atomic(address, sizeof(T), "atomicCAS", at);
  const T old = *address;
  if (old == expected) {
    *address = value;
    heed::emulator::progress();
  }
  return old;
}
