// Mistakes with Hopper's instructions, and correct uses of them.
#include <heed/kernels/simt/hopper.h>

#include "bugs.h"

namespace heed::testing {
namespace {

constexpr simt::Major kK = simt::Major::k, kMn = simt::Major::mn;

struct alignas(1024) Tile {
  uint16_t value[64][64];
};

struct Memory {
  Tile a, b;
  simt::Mbarrier full, free;
};

constexpr uint32_t kTileBytes = sizeof(Tile);

using Map = const __grid_constant__ simt::TensorMap;

// Rows of 64 numbers, each eight further on: small ones, of which bf16 has all.
simt::TensorMap map_of(const float* in, uint64_t rows = 64) {
  simt::TensorMap map;
  if (simt::make_tensor_map(map, in, {64, rows, 1}, {16, 16}, {64, 64, 1}) != cudaSuccess) map = {};
  return map;
}

template <class... Parameters, class... Arguments>
void go(void (*kernel)(Parameters...), int threads, Arguments... arguments) {
  simt::launch(kernel, dim3(1), dim3(static_cast<unsigned>(threads)), 0, nullptr, arguments...);
}

// `full` waits for one arrival, `free` for one of each thread.
__device__ Memory& start() {
  auto& memory = simt::shared<Memory>();
  if (threadIdx.x == 0) {
    simt::mbarrier_init(memory.full, 1);           // here
    simt::mbarrier_init(memory.free, blockDim.x);  // here
    simt::mbarrier_init_fence();
  }
  __syncthreads();
  return memory;
}

__device__ void load(Tile& tile, Map& map, Memory& memory, int row = 0) {
  if (threadIdx.x != 0) return;
  simt::mbarrier_arrive_expect(memory.full, kTileBytes);  // here
  simt::tma_load(&tile, map, 0, row, 0, memory.full);     // here
}

__device__ void fill(Tile& tile) {
  for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x)
    tile.value[i / 64][i % 64] = static_cast<uint16_t>(0x3f80 + i % 7);  // here
}

__device__ float number(const Tile& tile) {  // of a row that another thread may have written
  return __uint_as_float(static_cast<uint32_t>(tile.value[63 - threadIdx.x / 2][5]) << 16);  // here
}

__device__ float sum(const float (&d)[8][4]) {
  float sum = 0.0f;
  for (const auto& four : d)
    for (const float x : four) sum += x;
  return sum;
}

__device__ void multiply(float (&d)[8][4], const Memory& memory, bool accumulate = false) {
  const uint64_t a = simt::matrix_descriptor(&memory.a), b = simt::matrix_descriptor(&memory.b);
  simt::wgmma<kK>(d, a, b, accumulate);  // here
}

__device__ void multiply_and_wait(float (&d)[8][4], const Memory& memory) {
  simt::wgmma_fence();
  multiply(d, memory);
  simt::wgmma_commit();
  simt::wgmma_wait<0>(d);
}

// Both tiles, known to the tensor cores.
__device__ Memory& start_filled() {
  Memory& memory = start();
  fill(memory.a);
  fill(memory.b);
  simt::fence_async_shared();
  __syncthreads();
  return memory;
}

__global__ void no_init_fence(float* out) {
  auto& memory = simt::shared<Memory>();
  if (threadIdx.x == 0) simt::mbarrier_init(memory.free, kThreads);  // here
  __syncthreads();
  simt::mbarrier_arrive(memory.free);  // here
  simt::mbarrier_wait(memory.free, 0);
  out[threadIdx.x] = 0.0f;
}

__global__ void no_barrier_after_init(float* out) {
  auto& memory = simt::shared<Memory>();
  if (threadIdx.x == 0) {
    simt::mbarrier_init(memory.free, kThreads);  // here
    simt::mbarrier_init_fence();
  }
  simt::mbarrier_arrive(memory.free);  // here
  simt::mbarrier_wait(memory.free, 0);
  out[threadIdx.x] = 0.0f;
}

__global__ void initialised_twice(float* out) {
  Memory& memory = start();
  if (threadIdx.x == 0) simt::mbarrier_init(memory.free, 1);  // here
  out[threadIdx.x] = 0.0f;
}

__global__ void overwritten(float* out) {
  Memory& memory = start();
  if (threadIdx.x == 0) {
    memory.full.word = 0;
    simt::mbarrier_arrive(memory.full);  // here
  }
  out[threadIdx.x] = 0.0f;
}

__global__ void too_few_arrivals(float* out) {
  Memory& memory = start();
  if (threadIdx.x != 3) simt::mbarrier_arrive(memory.free);
  simt::mbarrier_wait(memory.free, 0);  // here
  out[threadIdx.x] = 0.0f;
}

__global__ void too_many_arrivals(float* out, Map map) {
  Memory& memory = start();
  load(memory.a, map, memory);
  if (threadIdx.x == 1) simt::mbarrier_arrive(memory.full);  // here
  simt::mbarrier_wait(memory.full, 0);
  out[threadIdx.x] = 0.0f;
}

template <uint32_t kBytes>
__global__ void announces(float* out, Map map) {
  Memory& memory = start();
  if (threadIdx.x == 0) {
    simt::mbarrier_arrive_expect(memory.full, kBytes);
    simt::tma_load(&memory.a, map, 0, 0, 0, memory.full);  // here
  }
  simt::mbarrier_wait(memory.full, 0);  // here
  out[threadIdx.x] = 0.0f;
}

template <uint32_t kParity>
__global__ void waits_for_parity(float* out, Map map) {
  Memory& memory = start();
  load(memory.a, map, memory);
  simt::mbarrier_wait(memory.full, kParity);  // here
  out[threadIdx.x] = number(memory.a);
  simt::mbarrier_wait(memory.full, 0);
}

__global__ void barrier_in_place_of_wait(float* out, Map map) {
  Memory& memory = start();
  load(memory.a, map, memory);
  __syncthreads();
  out[threadIdx.x] = number(memory.a);
  simt::mbarrier_wait(memory.full, 0);
}

__global__ void ends_during_copy(float* out, Map map) {
  Memory& memory = start();
  load(memory.a, map, memory);
  out[threadIdx.x] = 0.0f;
}

__global__ void phase_overrun(float* out) {
  Memory& memory = start();
  if (threadIdx.x == 64) {
    simt::mbarrier_arrive(memory.full);
    simt::mbarrier_arrive(memory.full);
  } else {
    simt::mbarrier_wait(memory.full, 0);  // here
  }
  out[threadIdx.x] = 0.0f;
}

// Three tiles in one place; correct if it waits until all threads have read.
template <bool kWaits>
__global__ void refills(float* out, Map map) {
  Memory& memory = start();
  float sum = 0.0f;
  for (int i = 0; i < 3; ++i) {
    if (kWaits && threadIdx.x == 0 && i > 0) simt::mbarrier_wait(memory.free, (i - 1) % 2);
    load(memory.a, map, memory, i);
    simt::mbarrier_wait(memory.full, i % 2);  // here
    sum += number(memory.a);
    if (i < 2) simt::mbarrier_arrive(memory.free);
  }
  out[threadIdx.x] = sum;
}

// Likewise, read by wgmma; correct if that is waited for before the arrival.
template <bool kWaits>
__global__ void refills_operand(float* out, Map map) {
  Memory& memory = start();
  fill(memory.b);
  simt::fence_async_shared();
  __syncthreads();
  float d[8][4];
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x == 0 && i > 0) simt::mbarrier_wait(memory.free, (i - 1) % 2);
    load(memory.a, map, memory, i);
    simt::mbarrier_wait(memory.full, i % 2);
    simt::wgmma_fence();
    multiply(d, memory, i > 0);
    simt::wgmma_commit();
    if (kWaits) simt::wgmma_wait<0>();
    if (i < 2) simt::mbarrier_arrive(memory.free);
  }
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = sum(d);
}

__global__ void misaligned_tile(float* out, Map map) {
  Memory& memory = start();
  if (threadIdx.x == 0) simt::tma_load(&memory.a.value[4], map, 0, 0, 0, memory.full);  // here
  out[threadIdx.x] = 0.0f;
}

__global__ void tile_in_global_memory(float* out, Map map) {
  Memory& memory = start();
  if (threadIdx.x == 0) simt::tma_load(out, map, 0, 0, 0, memory.full);  // here
  out[threadIdx.x] = 0.0f;
}

__global__ void loads(float* out, Map map) {
  Memory& memory = start();
  load(memory.a, map, memory);
  simt::mbarrier_wait(memory.full, 0);
  out[threadIdx.x] = number(memory.a);
}

// Of the tile's last rows, those that the map has and the memory does not.
__global__ void loads_end(float* out, Map map) {
  Memory& memory = start();
  load(memory.a, map, memory, 460);
  simt::mbarrier_wait(memory.full, 0);
  out[threadIdx.x] = number(memory.a);
}

__global__ void no_wgmma_fence(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  multiply(d, memory);
  simt::wgmma_commit();
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = sum(d);
}

__global__ void no_wgmma_fence_again(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  multiply_and_wait(d, memory);
  d[0][0] += 1.0f;
  multiply(d, memory, true);
  simt::wgmma_commit();
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = sum(d);
}

__global__ void reads_sums_early(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  simt::wgmma_fence();
  multiply(d, memory);
  simt::wgmma_commit();
  out[threadIdx.x] = sum(d);
  simt::wgmma_wait<0>(d);
}

__global__ void scales_sums_early(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  multiply_and_wait(d, memory);
  simt::wgmma_fence();
  multiply(d, memory, true);
  simt::wgmma_commit();
  d[3][1] *= 2.0f;
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = sum(d);
}

__global__ void changes_a_early(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  uint32_t a[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
  simt::wgmma_fence();
  simt::wgmma<kK>(d, a, simt::matrix_descriptor(&memory.b), false);  // here
  simt::wgmma_commit();
  a[2] = threadIdx.x;
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = sum(d) + static_cast<float>(a[2]);
}

__global__ void never_waits(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  simt::wgmma_fence();
  multiply(d, memory);
  simt::wgmma_commit();
  out[threadIdx.x] = 0.0f;
}

__global__ void no_commit(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  simt::wgmma_fence();
  multiply(d, memory);
  simt::wgmma_wait<0>(d);  // here
  out[threadIdx.x] = sum(d);
}

__global__ void waits_for_too_few_groups(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  simt::wgmma_fence();
  multiply(d, memory);
  simt::wgmma_commit();
  simt::wgmma_wait<1>(d);  // here
  out[threadIdx.x] = sum(d);
}

__global__ void no_async_fence(float* out) {
  Memory& memory = start();
  fill(memory.a);
  fill(memory.b);
  __syncthreads();
  float d[8][4];
  multiply_and_wait(d, memory);
  out[threadIdx.x] = sum(d);
}

__global__ void async_fence_after_barrier(float* out) {
  Memory& memory = start();
  fill(memory.a);
  fill(memory.b);
  __syncthreads();
  simt::fence_async_shared();
  float d[8][4];
  multiply_and_wait(d, memory);
  out[threadIdx.x] = sum(d);
}

__global__ void no_barrier_after_async_fence(float* out) {
  Memory& memory = start();
  fill(memory.a);
  fill(memory.b);
  simt::fence_async_shared();
  float d[8][4];
  multiply_and_wait(d, memory);
  out[threadIdx.x] = sum(d);
}

__global__ void stores_before_copy(float* out, Map map) {
  Memory& memory = start();
  fill(memory.a);
  __syncthreads();
  load(memory.a, map, memory);
  simt::mbarrier_wait(memory.full, 0);
  out[threadIdx.x] = number(memory.a);
}

template <int kRow, int kMore, uint64_t kBits>
__global__ void descriptor(float* out) {
  Memory& memory = start_filled();
  float d[16][4];
  simt::wgmma_fence();
  const uint64_t a = simt::matrix_descriptor(&memory.a);
  const uint64_t b = (simt::matrix_descriptor(memory.b.value[kRow]) + kMore) & kBits;
  if (kMore >= 0)
    simt::wgmma<kK>(d, a, b, false);  // here
  else
    simt::wgmma<kMn>(d, a, b + 1, false);  // here
  simt::wgmma_commit();
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = d[0][0];
}

__global__ void operands_differ(float* out) {
  Memory& memory = start_filled();
  float d[8][4] = {};
  simt::wgmma_fence();
  multiply(d, memory, threadIdx.x < 100);
  simt::wgmma_commit();
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = sum(d);
}

__global__ void divergent_warpgroup(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  const uint64_t a = simt::matrix_descriptor(&memory.a), b = simt::matrix_descriptor(&memory.b);
  simt::wgmma_fence();
  if (threadIdx.x < 64)
    simt::wgmma<kK>(d, a, b, false);  // here
  else
    simt::wgmma<kK>(d, a, b, false);  // here
  simt::wgmma_commit();
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = sum(d);
}

__global__ void two_warps(float* out) {
  Memory& memory = start_filled();
  float d[8][4];
  multiply_and_wait(d, memory);
  out[threadIdx.x] = sum(d);
}

// Three warpgroups: 168 registers each at first.
template <int kFew, int kMany>
__global__ void registers(float* out) {
  if (threadIdx.x < 128)
    simt::release_registers<kFew>();  // here
  else
    simt::take_registers<kMany>();  // here
  if (threadIdx.x < 128) out[threadIdx.x] = 0.0f;
}

__global__ void takes_what_it_has(float* out) {
  simt::take_registers<160>();  // here
  if (threadIdx.x < 128) out[threadIdx.x] = 0.0f;
}

// A warp that loads, two warpgroups that multiply, each its own sums in halves of a ring of two tiles.
__global__ void producer_and_consumers(float* out, Map map) {
  struct Ring {
    Tile tile[2], b;
    simt::Mbarrier full[2], free[2];
  };
  auto& ring = simt::shared<Ring>();
  constexpr int kTiles = 5;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      simt::mbarrier_init(ring.full[i], 1);
      simt::mbarrier_init(ring.free[i], 2 * 4);
    }
    simt::mbarrier_init_fence();
  }
  fill(ring.b);
  simt::fence_async_shared();
  __syncthreads();
  if (threadIdx.x < 128) {
    simt::release_registers<24>();
    for (int i = 0; i < kTiles && threadIdx.x == 0; ++i) {
      simt::mbarrier_wait(ring.free[i % 2], (i / 2 + 1) % 2);
      simt::mbarrier_arrive_expect(ring.full[i % 2], kTileBytes);
      simt::tma_load(&ring.tile[i % 2], map, 0, i, 0, ring.full[i % 2]);
    }
    return;
  }
  simt::take_registers<240>();
  float d[8][4] = {};
  const uint64_t b = simt::matrix_descriptor(&ring.b);
  uint32_t words[4] = {0x3f803f80, 0x3f803f80, 0x40003f80, 0x3f804000};
  for (int i = 0; i < kTiles; ++i) {
    simt::mbarrier_wait(ring.full[i % 2], i / 2 % 2);
    const uint64_t tile = simt::matrix_descriptor(&ring.tile[i % 2]);
    simt::wgmma_fence();
    for (int step = 0; step < 4; ++step)
      simt::wgmma<kMn>(d, tile + static_cast<uint64_t>(step) * 2, b + static_cast<uint64_t>(step) * 128,
                       true);
    simt::wgmma<kK>(d, words, tile, true);
    simt::wgmma_commit();
    simt::wgmma_wait<0>(d);
    if (threadIdx.x % 32 == 0) simt::mbarrier_arrive(ring.free[i % 2]);
    d[0][0] *= 0.5f;
  }
  if (threadIdx.x < 256) out[threadIdx.x - 128] = sum(d);
}

// Groups that end one after another, and a tile that is written again after both.
__global__ void two_groups(float* out) {
  Memory& memory = start_filled();
  float first[8][4], second[8][4];
  simt::wgmma_fence();
  multiply(first, memory);
  simt::wgmma_commit();
  multiply(second, memory);
  simt::wgmma_commit();
  simt::wgmma_wait<1>(first);
  const float early = sum(first);
  simt::wgmma_wait<0>(second);
  __syncthreads();
  fill(memory.a);
  simt::fence_async_shared();
  __syncthreads();
  multiply_and_wait(first, memory);
  out[threadIdx.x] = early + sum(first) + sum(second);
}

Bug bug(const char* name, void (*run)(float*, const float*), const char* all) {
  return {name, run, all, all, all};
}

template <void (*kKernel)(float*), int kBlock = kThreads>
void plainly(float* out, const float*) {
  go(kKernel, kBlock, out);
}
template <void (*kKernel)(float*, simt::TensorMap), int kBlock = kThreads>
void mapped(float* out, const float* in) {
  go(kKernel, kBlock, out, map_of(in));
}

constexpr uint64_t kAllBits = ~uint64_t{0};

}  // namespace

std::vector<Bug> hopper_bugs() {
  return {
      bug("no_init_fence", plainly<no_init_fence>, "no mbarrier_init_fence() by thread 0"),
      {"no_barrier_after_init", plainly<no_barrier_after_init>, "the mbarrier is not initialised",
       "the mbarrier is not initialised", "data race on shared memory"},
      bug("initialised_twice", plainly<initialised_twice>, "is in use"),
      bug("overwritten", plainly<overwritten>, "was overwritten"),
      bug("too_few_arrivals", plainly<too_few_arrivals>, "lacks 1 of 128 arrivals and 0 of 0 bytes"),
      bug("too_many_arrivals", mapped<too_many_arrivals>, "more than the 1 arrivals in phase 0"),
      bug("announces_too_little", mapped<announces<kTileBytes / 2>>,
          "copies of 8192 bytes in phase 0 of the mbarrier at byte "),
      bug("announces_too_much", mapped<announces<2 * kTileBytes>>,
          "lacks 0 of 1 arrivals and 8192 of 16384 bytes"),
      {"waits_for_other_parity", mapped<waits_for_parity<1>>, "nan", "nan",
       "read of uninitialised shared memory"},
      bug("parity_2", mapped<waits_for_parity<2>>, "parity 2, expected 0 or 1"),
      {"barrier_in_place_of_wait", mapped<barrier_in_place_of_wait>, "nan", "nan",
       "data race on shared memory"},
      bug("ends_during_copy", mapped<ends_during_copy>, "ended during the copy by thread 0's tma_load"),
      bug("phase_overrun", plainly<phase_overrun>, "phase overrun: phase 1 of the mbarrier"),
      {"refills_too_early", mapped<refills<false>>, "deadlock in block", "deadlock in block",
       "write by tma_load"},
      {"refills_operand_too_early", mapped<refills_operand<false>>, "differs", "differs",
       "unordered with the read by wgmma of threads 0-127"},
      bug("misaligned_tile", mapped<misaligned_tile>,
          "misaligned destination, 512 bytes past a multiple of 1024"),
      bug("tile_in_global_memory", mapped<tile_in_global_memory>, "the destination are not in shared memory"),
      bug(
          "no_map", [](float* out, const float*) { go(loads, kThreads, out, simt::TensorMap{}); },
          "tma_load: not a map that make_tensor_map() made"),
      bug(
          "map_of_host_memory",
          [](float* out, const float*) {
            alignas(16) static float host[4096];
            go(loads, kThreads, out, map_of(host));
          },
          "the matrix is not in memory of the device"),
      bug(
          "map_beyond_allocation",
          [](float* out, const float* in) { go(loads_end, kThreads, out, map_of(in, 2000)); },
          "the matrix of the tensor map exceeds its allocation"),
      bug("no_wgmma_fence", plainly<no_wgmma_fence>, "no wgmma_fence() by warp 0 before it"),
      bug("no_wgmma_fence_again", plainly<no_wgmma_fence_again>,
          "no wgmma_fence() by warp 0 between the last wgmma_wait() and it"),
      bug("reads_sums_early", plainly<reads_sums_early>, "nan"),
      bug("scales_sums_early", plainly<scales_sums_early>, "wrote to its sums before the wgmma_wait()"),
      bug("changes_a_early", plainly<changes_a_early>, "changed before the wgmma_wait() for it"),
      bug("never_waits", plainly<never_waits>, "ended without wgmma_wait() for the wgmma at"),
      bug("no_commit", plainly<no_commit>, "leaves the last product into these sums under way"),
      bug("waits_for_too_few_groups", plainly<waits_for_too_few_groups>,
          "leaves the last product into these sums under way"),
      {"no_async_fence", plainly<no_async_fence>, "", "", "without a fence_async_shared() of thread "},
      {"async_fence_after_barrier", plainly<async_fence_after_barrier>, "", "",
       "without a fence_async_shared() of thread "},
      {"no_barrier_after_async_fence", plainly<no_barrier_after_async_fence>, "", "",
       "data race on shared memory"},
      {"stores_before_copy", mapped<stores_before_copy>, "", "", "without a fence_async_shared() of thread "},
      bug("descriptor_within_eight_rows", plainly<descriptor<4, 0, kAllBits>>,
          "the descriptor of b starts 512 bytes past a multiple of 1024"),
      bug("descriptor_of_too_few_rows", plainly<descriptor<0, 0, kAllBits>>,
          "which is no shared memory of the block"),
      bug("descriptor_without_next", plainly<descriptor<0, -1, kAllBits>>,
          "has its second 64 columns 0 bytes on"),
      bug("descriptor_without_swizzle", plainly<descriptor<0, 0, (kAllBits >> 2)>>,
          "is not one of matrix_descriptor()'s"),
      bug("operands_differ", plainly<operands_differ>, "the operands of thread 100 differ"),
      bug("divergent_warpgroup", plainly<divergent_warpgroup>,
          "divergent warpgroup: this thread executes wgmma"),
      bug("two_warps", plainly<two_warps, 64>, "needs four whole warps"),
      bug("takes_too_many_registers", plainly<registers<152, 240>, 384>,
          "a thread of warps 8 to 11 has 168 and wants 240; given back are 16"),
      bug("releases_more_than_it_has", plainly<registers<176, 168>, 384>,
          "release_registers<176>: the threads of the warpgroup have 168"),
      bug("takes_what_it_has", plainly<takes_what_it_has, 384>,
          "take_registers<160>: the threads of the warpgroup have 168"),
  };
}

std::vector<Bug> correct_hopper_kernels() {
  return {
      bug("loads", mapped<loads>, ""),
      bug("refills", mapped<refills<true>>, ""),
      bug("refills_operand", mapped<refills_operand<true>>, ""),
      bug("registers", plainly<registers<24, 240>, 384>, ""),
      bug("producer_and_consumers", mapped<producer_and_consumers, 384>, ""),
      bug("two_groups", plainly<two_groups>, ""),
  };
}

}  // namespace heed::testing
