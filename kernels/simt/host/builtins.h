// CUDA's built-in variables and the functions by which threads of a block meet.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include <cuda_runtime.h>

#include <heed/kernels/simt/host/location.h>

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace heed::emulator {

void sync_threads(Location at);
int sync_threads_count(bool predicate, Location at);
int sync_threads_and(bool predicate, Location at);
int sync_threads_or(bool predicate, Location at);
void named_barrier(int id, int threads, bool wait_here, Location at);
void spin(Location at);  // lets others run while this thread waits for memory to change
void progress();         // memory that others may wait for has changed
void thread_fence();
unsigned lane_id();
[[noreturn]] void fail(const std::string& what, Location at);

/// Waits until all lanes of `mask` that have not returned are here; the last one runs `function` on the
/// operands of all.
void warp_collective(const char* what, void (*function)(void* const* operands, uint32_t mask, Location at),
                     uint32_t mask, void* operand, Location at, bool orders_memory = false);

enum class Shuffle : uint8_t { index, up, down, exclusive_or };
struct ShuffleOperand {
  uint64_t in, out;
  Shuffle kind;
  int argument, width;
};
void shuffle_lanes(void* const* operands, uint32_t mask, Location at);

template <class T>
T shuffle(const char* what, Shuffle kind, unsigned mask, T value, int argument, int width, Location at) {
  static_assert(sizeof(T) <= 8);
  if (width < 1 || width > 32 || (width & (width - 1)) != 0)
    fail(std::string(what) + ": the width must be a power of two up to 32", at);
  ShuffleOperand operand{0, 0, kind, argument, width};
  memcpy(&operand.in, static_cast<const void*>(&value), sizeof(T));
  warp_collective(what, shuffle_lanes, mask, &operand, at);
  memcpy(static_cast<void*>(&value), &operand.out, sizeof(T));
  return value;
}

enum class Reduce : uint8_t {
  ballot,
  match,
  add,
  min_unsigned,
  max_unsigned,
  min_signed,
  max_signed,
  bit_and,
  bit_or,
  bit_xor
};
struct ReduceOperand {
  uint64_t in;
  uint32_t out;
  Reduce kind;
};
void reduce_lanes(void* const* operands, uint32_t mask, Location at);

inline uint32_t reduce(const char* what, Reduce kind, unsigned mask, uint64_t value, Location at) {
  ReduceOperand operand{value, 0, kind};
  warp_collective(what, reduce_lanes, mask, &operand, at);
  return operand.out;
}

}  // namespace heed::emulator

#define HEED_SIMT_AT ::heed::emulator::Location at = ::heed::emulator::Location::here()

inline void __syncthreads(HEED_SIMT_AT) { heed::emulator::sync_threads(at); }
inline int __syncthreads_count(int predicate, HEED_SIMT_AT) {
  return heed::emulator::sync_threads_count(predicate, at);
}
inline int __syncthreads_and(int predicate, HEED_SIMT_AT) {
  return heed::emulator::sync_threads_and(predicate, at);
}
inline int __syncthreads_or(int predicate, HEED_SIMT_AT) {
  return heed::emulator::sync_threads_or(predicate, at);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, HEED_SIMT_AT) {
  heed::emulator::warp_collective("__syncwarp", nullptr, mask, nullptr, at, true);
}

#define HEED_SIMT_SHUFFLE(name, kind)                                                                       \
  template <class T>                                                                                        \
  T name(unsigned mask, T value, int argument, int width = 32, HEED_SIMT_AT) {                              \
    return heed::emulator::shuffle(#name, heed::emulator::Shuffle::kind, mask, value, argument, width, at); \
  }
HEED_SIMT_SHUFFLE(__shfl_sync, index)
HEED_SIMT_SHUFFLE(__shfl_up_sync, up)
HEED_SIMT_SHUFFLE(__shfl_down_sync, down)
HEED_SIMT_SHUFFLE(__shfl_xor_sync, exclusive_or)
#undef HEED_SIMT_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, int predicate, HEED_SIMT_AT) {
  return heed::emulator::reduce("__ballot_sync", heed::emulator::Reduce::ballot, mask, predicate != 0, at);
}
inline int __all_sync(unsigned mask, int predicate, HEED_SIMT_AT) {
  return static_cast<int>(
      heed::emulator::reduce("__all_sync", heed::emulator::Reduce::bit_and, mask, predicate != 0, at));
}
inline int __any_sync(unsigned mask, int predicate, HEED_SIMT_AT) {
  return static_cast<int>(
      heed::emulator::reduce("__any_sync", heed::emulator::Reduce::bit_or, mask, predicate != 0, at));
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, HEED_SIMT_AT) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return heed::emulator::reduce("__match_any_sync", heed::emulator::Reduce::match, mask, bits, at);
}

template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all, HEED_SIMT_AT) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  *all = heed::emulator::reduce("__match_all_sync", heed::emulator::Reduce::match, mask, bits, at) == mask;
  return *all ? mask : 0;
}

#define HEED_SIMT_REDUCE(name, type, kind)                                                     \
  inline type name(unsigned mask, type value, HEED_SIMT_AT) {                                  \
    return static_cast<type>(heed::emulator::reduce(#name, heed::emulator::Reduce::kind, mask, \
                                                    static_cast<uint32_t>(value), at));        \
  }
HEED_SIMT_REDUCE(__reduce_add_sync, unsigned, add)
HEED_SIMT_REDUCE(__reduce_add_sync, int, add)
HEED_SIMT_REDUCE(__reduce_min_sync, unsigned, min_unsigned)
HEED_SIMT_REDUCE(__reduce_max_sync, unsigned, max_unsigned)
HEED_SIMT_REDUCE(__reduce_min_sync, int, min_signed)
HEED_SIMT_REDUCE(__reduce_max_sync, int, max_signed)
HEED_SIMT_REDUCE(__reduce_and_sync, unsigned, bit_and)
HEED_SIMT_REDUCE(__reduce_or_sync, unsigned, bit_or)
HEED_SIMT_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef HEED_SIMT_REDUCE

inline void __threadfence() { heed::emulator::thread_fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { heed::emulator::thread_fence(); }
inline void __nanosleep(unsigned, HEED_SIMT_AT) { heed::emulator::spin(at); }
inline long long clock64() { return 0; }
[[noreturn]] inline void heed_emulator_trap(HEED_SIMT_AT) { heed::emulator::fail("__trap()", at); }
#define __trap() heed_emulator_trap()
