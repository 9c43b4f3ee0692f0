// Mistakes with Hopper's bulk copies from shared to global memory, and correct uses of them.
#include <heed/kernels/simt/hopper.h>

#include "bugs.h"

namespace heed::testing {
namespace {

constexpr int kNumbers = 32;
constexpr uint32_t kBytes = kNumbers * sizeof(float);

struct alignas(16) Memory {
  float number[kThreads];
  unsigned ticket;
};

__device__ void fill(Memory& memory, float first) {
  memory.number[threadIdx.x] = first + static_cast<float>(threadIdx.x);  // here
}

// Numbers of which bulk copies know.
__device__ Memory& start_filled(float first = 1.0f) {
  auto& memory = simt::shared<Memory>();
  fill(memory, first);
  simt::fence_async_shared();
  __syncthreads();
  return memory;
}

__device__ void store(float* out, const Memory& memory) {
  simt::bulk_store(out, memory.number, kBytes);  // here
  simt::bulk_commit();
}

__global__ void misaligned(float* out, int to, int from, uint32_t bytes) {
  const Memory& memory = start_filled();
  if (threadIdx.x != 0) return;
  simt::bulk_store(out + to, memory.number + from, bytes);  // here
  simt::bulk_commit();
  simt::bulk_wait<0>();
}
template <int kTo, int kFrom, uint32_t kSize>
void misaligned_by(float* out, const float*) {
  simt::launch(misaligned, dim3(1), dim3(kThreads), 0, nullptr, out, kTo, kFrom, kSize);
}

__global__ void copies(float* to, const float* from) {
  const Memory& memory = start_filled();
  if (threadIdx.x != 0) return;
  simt::bulk_store(to, from != nullptr ? from : memory.number, kBytes);  // here
  simt::bulk_commit();
  simt::bulk_wait<0>();
}

__global__ void to_own_variable(float* out) {
  const Memory& memory = start_filled();
  if (threadIdx.x != 0) return;
  alignas(16) float number[kNumbers];
  store(number, memory);
  simt::bulk_wait<0>();
  out[0] = number[0];
}

__global__ void by_many_threads(float* out) {
  const Memory& memory = start_filled();
  if (threadIdx.x >= kThreads / 4) return;
  simt::bulk_store(out + 4 * threadIdx.x, memory.number, 16);  // here
  simt::bulk_commit();
  simt::bulk_wait<0>();
}

__global__ void no_async_fence(float* out) {
  auto& memory = simt::shared<Memory>();
  fill(memory, 1.0f);
  __syncthreads();
  if (threadIdx.x != 0) return;
  store(out, memory);
  simt::bulk_wait<0>();
}

__global__ void never_waits(float* out) {
  const Memory& memory = start_filled();
  if (threadIdx.x == 0) store(out, memory);
}

__global__ void never_commits(float* out) {
  const Memory& memory = start_filled();
  if (threadIdx.x != 0) return;
  simt::bulk_store(out, memory.number, kBytes);  // here
  simt::bulk_wait<0>();
}

template <bool kWaits>
__global__ void writes_source_again(float* out) {
  Memory& memory = start_filled();
  if (threadIdx.x == 0) {
    store(out, memory);
    if (kWaits) simt::bulk_wait_read<0>();
  }
  __syncthreads();
  fill(memory, -1.0f);
  __syncthreads();
  if (threadIdx.x == 0) simt::bulk_wait_read<0>();
}

template <bool kWaits>
__global__ void reads_result(float* out) {
  const Memory& memory = start_filled();
  if (threadIdx.x != 0) return;
  store(out, memory);
  if (kWaits)
    simt::bulk_wait<0>();
  else
    simt::bulk_wait_read<0>();
  out[kNumbers] = out[3];  // here
}

// Two groups, of which the first is waited for.
__global__ void two_groups(float* out) {
  const Memory& memory = start_filled();
  if (threadIdx.x != 0) return;
  store(out, memory);
  store(out + kNumbers, memory);
  simt::bulk_wait<1>();
  out[2 * kNumbers] = out[3];
  simt::bulk_wait_read<0>();
}

__global__ void adds_to_nothing(float* to, float* out) {
  const Memory& memory = start_filled();
  if (threadIdx.x != 0) return;
  simt::bulk_add(to, memory.number, kBytes);  // here
  simt::bulk_commit();
  simt::bulk_wait<0>();
  out[0] = 0.0f;
}

enum class Without { nothing, turn, proxy_fence, wait, release_fence };

// Warps of all blocks add to the same numbers in the order of their tickets.
template <Without kWithout, unsigned kWarps>
__global__ void in_turn(float* out) {
  auto& memory = start_filled();
  auto* const counters = reinterpret_cast<unsigned*>(out + 2 * kNumbers);
  if (threadIdx.x % 32 != 0 || threadIdx.x / 32 >= kWarps) return;
  const unsigned ticket = atomicAdd(counters, 1u);
  if (kWithout != Without::turn)
    while (atomicAdd(counters + 1, 0u) != ticket) simt::spin_pause();
  __threadfence();
  if (kWithout != Without::proxy_fence) simt::fence_async_global();
  simt::bulk_add(out, memory.number, kBytes);  // here
  simt::bulk_commit();
  simt::bulk_wait_read<0>();
  if (kWithout != Without::wait) simt::bulk_wait<0>();
  if (kWithout != Without::release_fence) __threadfence();
  atomicExch(counters + 1, ticket + 1);
}

Bug bug(const char* name, void (*run)(float*, const float*), const char* all) {
  return {name, run, all, all, all};
}
Bug race(const char* name, void (*run)(float*, const float*), const char* race) {
  return {name, run, "", "", race};
}

template <void (*kKernel)(float*), unsigned kBlocks = 1>
void plainly(float* out, const float*) {
  simt::launch(kKernel, dim3(kBlocks), dim3(kThreads), 0, nullptr, out);
}

template <Without kWithout>
constexpr auto in_blocks = plainly<in_turn<kWithout, 1>, 3>;
template <Without kWithout>
constexpr auto in_warps = plainly<in_turn<kWithout, 4>>;

void copy(float* to, const float* from) {
  simt::launch(copies, dim3(1), dim3(kThreads), 0, nullptr, to, from);
}

}  // namespace

std::vector<Bug> bulk_bugs() {
  constexpr const char* kMisaligned = "bulk_store: misaligned, addresses and bytes must be multiples of 16";
  return {
      bug("bulk_misaligned_destination", misaligned_by<1, 0, kBytes>, kMisaligned),
      bug("bulk_misaligned_source", misaligned_by<0, 2, kBytes>, kMisaligned),
      bug("bulk_misaligned_size", misaligned_by<0, 0, 8>, kMisaligned),
      bug("bulk_of_nothing", misaligned_by<0, 0, 0>, kMisaligned),
      bug("bulk_source_too_long", misaligned_by<0, 4, kThreads * sizeof(float) + 16>,
          "bytes of the source are not in shared memory"),
      bug(
          "bulk_from_global_memory", [](float* out, const float* in) { copy(out, in); },
          "the 128 bytes of the source are not in shared memory"),
      bug("bulk_to_own_variable", plainly<to_own_variable>, "the destination is not in memory of the device"),
      bug(
          "bulk_beyond_allocation",
          [](float* out, const float*) { copy(out + kThreads - kNumbers / 2, nullptr); },
          "the destination exceeds its allocation"),
      bug("bulk_by_many_threads", plainly<by_many_threads>,
          "lets 8 threads of a block or cluster issue bulk copies"),
      race("bulk_no_async_fence", plainly<no_async_fence>, "without a fence_async_shared() of thread "),
      bug("bulk_never_waits", plainly<never_waits>,
          "ended without bulk_wait_read() for thread 0's bulk copy"),
      bug("bulk_never_commits", plainly<never_commits>,
          "ended without bulk_wait_read() for thread 0's bulk copy"),
      {"bulk_writes_source_early", plainly<writes_source_again<false>>, "differs", "differs",
       "unordered with the read by bulk copy"},
      {"bulk_reads_result_early", plainly<reads_result<false>>, "differs", "differs",
       "unordered with the write by bulk copy"},
      race(
          "bulk_adds_to_nothing",
          [](float* out, const float*) {
            float* nothing = nullptr;
            static_cast<void>(cudaMalloc(&nothing, kBytes));
            struct Free {
              float* memory;
              ~Free() { static_cast<void>(cudaFree(memory)); }
            } free{nothing};
            simt::launch(adds_to_nothing, dim3(1), dim3(kThreads), 0, nullptr, nothing, out);
          },
          "read of uninitialised global memory"),
      race("bulk_blocks_out_of_turn", in_blocks<Without::turn>, "data race between blocks"),
      race("bulk_warps_out_of_turn", in_warps<Without::turn>, "data race on global memory"),
      race("bulk_blocks_without_proxy_fence", in_blocks<Without::proxy_fence>,
           "without a fence_async_global() since the atomic"),
      race("bulk_warps_without_proxy_fence", in_warps<Without::proxy_fence>,
           "without a fence_async_global() since the atomic"),
      race("bulk_blocks_announced_early", in_blocks<Without::wait>, "data race between blocks"),
      race("bulk_warps_announced_early", in_warps<Without::wait>, "data race on global memory"),
      race("bulk_blocks_without_release", in_blocks<Without::release_fence>, "data race between blocks"),
      race("bulk_warps_without_release", in_warps<Without::release_fence>, "data race on global memory"),
  };
}

std::vector<Bug> correct_bulk_kernels() {
  return {
      bug("bulk_copies", plainly<reads_result<true>>, ""),
      bug("bulk_writes_source_again", plainly<writes_source_again<true>>, ""),
      bug("bulk_two_groups", plainly<two_groups>, ""),
      bug("bulk_blocks_in_turn", in_blocks<Without::nothing>, ""),
      bug("bulk_warps_in_turn", in_warps<Without::nothing>, ""),
  };
}

}  // namespace heed::testing
