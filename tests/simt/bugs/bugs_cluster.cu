// Mistakes with clusters of blocks, and correct uses of them.
#include <heed/kernels/simt/hopper.h>

#include "bugs.h"

namespace heed::testing {
namespace {

constexpr unsigned kBlocks = 2;
constexpr uint16_t kBoth = 3;
constexpr int kHalfRows = 32, kRounds = 3;

struct alignas(1024) Tile {
  uint16_t value[2 * kHalfRows][64];
};

struct Memory {
  Tile tile;
  simt::Mbarrier full, free;
};

using Map = const __grid_constant__ simt::TensorMap;

enum class Without { nothing, sync_at_start, wait_at_end, others_readers, others_bytes };

// `full` waits for one arrival, `free` for one of each warp of the cluster.
template <Without kWithout>
__device__ Memory& start() {
  auto& memory = simt::shared<Memory>();
  if (threadIdx.x == 0) {
    simt::mbarrier_init(memory.full, 1);                                                      // here
    simt::mbarrier_init(memory.free, kWithout == Without::others_readers ? 4 : 4 * kBlocks);  // here
    simt::mbarrier_init_fence();
  }
  if (kWithout == Without::sync_at_start)
    __syncthreads();
  else
    simt::cluster_sync();
  return memory;
}

// Each block loads half of a tile for both, three times. `out` gets a number that both have read.
template <Without kWithout>
__global__ void shared_tile(float* out, Map map) {
  Memory& memory = start<kWithout>();
  const unsigned block = simt::block_in_cluster();
  float sum = 0.0f;
  for (int round = 0; round < kRounds; ++round) {
    if (threadIdx.x == 0) {
      simt::mbarrier_wait(memory.free, round % 2 ^ 1);  // here
      simt::mbarrier_arrive_expect(memory.full,         // here
                                   sizeof(Tile) / (kWithout == Without::others_bytes ? kBlocks : 1));
      const int row = static_cast<int>(block) * kHalfRows;
      simt::tma_load_multicast(memory.tile.value[row], map, 0, row + round, 0, memory.full, kBoth);  // here
    }
    simt::mbarrier_wait(memory.full, round % 2);  // here
    for (int i = 0; i < 2; ++i)
      sum += __uint_as_float(static_cast<uint32_t>(memory.tile.value[threadIdx.x % 32 + i * 32][0])
                             << 16);  // here
    __syncwarp();
    const unsigned lane = threadIdx.x % 32;
    if (kWithout == Without::others_readers) {
      if (lane == 0) simt::mbarrier_arrive(memory.free);
    } else if (lane < kBlocks) {
      simt::mbarrier_arrive_at(memory.free, lane);  // here
    }
  }
  if (kWithout != Without::wait_at_end && threadIdx.x == 0) simt::mbarrier_wait(memory.free, kRounds % 2 ^ 1);
  if (block == 0) out[threadIdx.x] = sum;
}

// Rows of 64 numbers, each eight further on: small ones, of which bf16 has all.
simt::TensorMap map_of(const float* in) {
  simt::TensorMap map;
  if (simt::make_tensor_map(map, in, {64, 128, 1}, {16, 16}, {64, kHalfRows, 1}) != cudaSuccess) map = {};
  return map;
}

template <Without kWithout>
void share(float* out, const float* in) {
  simt::launch(shared_tile<kWithout>, simt::Grid(dim3(kBlocks), kBlocks), dim3(kThreads), 0, nullptr, out,
               map_of(in));
}

// The first block writes what the second one reads.
template <bool kOfCluster>
__global__ void reads_others_numbers(float* out) {
  const unsigned block = simt::block_in_cluster();
  if (block == 0 && threadIdx.x < 64) out[threadIdx.x] = 1.0f;  // here
  if (kOfCluster)
    simt::cluster_sync();
  else
    __syncthreads();
  if (block == 1 && threadIdx.x < 64) out[64 + threadIdx.x] = out[threadIdx.x];  // here
}

__global__ void one_block_syncs(float* out) {
  if (simt::block_in_cluster() == 0)
    simt::cluster_sync();  // here
  else
    simt::barrier_sync(1, 2 * kThreads);  // here
  out[threadIdx.x] = 0.0f;
}

__global__ void syncs_apart(float* out) {
  if (simt::block_in_cluster() == 0)
    simt::cluster_sync();  // here
  else
    simt::cluster_sync();  // here
  out[threadIdx.x] = 0.0f;
}

template <uint32_t kBlock>
__global__ void arrives_at(float* out) {
  Memory& memory = start<Without::nothing>();
  simt::mbarrier_arrive_at(memory.free, kBlock);  // here
  out[threadIdx.x] = 0.0f;
}

__global__ void arrives_elsewhere(float* out) {
  static_cast<void>(start<Without::nothing>());
  simt::Mbarrier own;
  simt::mbarrier_arrive_at(own, 0);  // here
  out[threadIdx.x] = 0.0f;
}

template <uint16_t kTo>
__global__ void loads_to(float* out, Map map) {
  Memory& memory = start<Without::nothing>();
  if (threadIdx.x == 0) simt::tma_load_multicast(memory.tile.value, map, 0, 0, 0, memory.full, kTo);  // here
  out[threadIdx.x] = 0.0f;
}

// The first block ends before or while the second one loads something for both.
template <bool kBefore>
__global__ void ends_early(float* out, Map map) {
  Memory& memory = start<Without::nothing>();
  const bool first = simt::block_in_cluster() == 0;
  if (kBefore && first) return;
  if (!first && threadIdx.x == 0) {
    simt::mbarrier_arrive_expect(memory.full, sizeof(Tile) / 2);
    simt::tma_load_multicast(memory.tile.value, map, 0, 0, 0, memory.full, kBoth);  // here
  }
  if (!kBefore) simt::cluster_sync();
  if (first) return;
  simt::mbarrier_wait(memory.full, 0);
  out[threadIdx.x] = 0.0f;
}

__global__ void nothing(float* out) { out[threadIdx.x] = 0.0f; }

template <unsigned kAll, unsigned kTogether, unsigned kBlock = kThreads>
void in_clusters(float* out, const float*) {
  simt::launch(nothing, simt::Grid(dim3(kAll), kTogether), dim3(kBlock), 0, nullptr, out);
}

template <void (*kKernel)(float*)>
void plainly(float* out, const float*) {
  simt::launch(kKernel, simt::Grid(dim3(kBlocks), kBlocks), dim3(kThreads), 0, nullptr, out);
}
template <void (*kKernel)(float*, simt::TensorMap)>
void mapped(float* out, const float* in) {
  simt::launch(kKernel, simt::Grid(dim3(kBlocks), kBlocks), dim3(kThreads), 0, nullptr, out, map_of(in));
}

Bug bug(const char* name, void (*run)(float*, const float*), const char* all) {
  return {name, run, all, all, all};
}

}  // namespace

std::vector<Bug> cluster_bugs() {
  return {
      {"cluster_no_sync_at_start", share<Without::sync_at_start>, "of the cluster has not begun to use it",
       "of the cluster has not begun to use it", "data race on shared memory"},
      bug("cluster_no_wait_at_end", share<Without::wait_at_end>,
          "of the cluster has ended, and its shared memory with it"),
      bug("cluster_forgets_others_readers", share<Without::others_readers>,
          "more than the 8192 that mbarrier_arrive_expect announced"),
      bug("cluster_forgets_others_bytes", share<Without::others_bytes>,
          "more than the 4096 that mbarrier_arrive_expect announced"),
      {"cluster_block_barrier", plainly<reads_others_numbers<false>>, "differs", "differs",
       "data race on global memory"},
      bug("cluster_one_block_syncs", plainly<one_block_syncs>, "deadlock in the cluster"),
      bug("cluster_syncs_apart", plainly<syncs_apart>, "divergent barrier: this thread is in the barrier at"),
      bug("cluster_arrives_at_none", plainly<arrives_at<2>>, "mbarrier_arrive_at: block 2 of a cluster of 2"),
      bug("cluster_arrives_elsewhere", plainly<arrives_elsewhere>,
          "mbarrier_arrive_at: the address is not in shared memory of the block"),
      bug("cluster_loads_to_none", mapped<loads_to<4>>, "tma_load_multicast: block 2 of a cluster of 2"),
      bug("cluster_loads_to_nobody", mapped<loads_to<0>>, "tma_load_multicast: to no block"),
      bug("cluster_ends_before_copy", mapped<ends_early<true>>,
          "tma_load_multicast: block 0 of the cluster has ended, and its shared memory with it"),
      bug("cluster_ends_during_copy", mapped<ends_early<false>>,
          "reaches block 0 of the cluster, which has ended"),
      bug("cluster_does_not_divide", in_clusters<3, 2>,
          "clusters of 2 blocks in a grid of (3,1,1), expected up to 8 that divide its first dimension"),
      bug("cluster_of_too_many", in_clusters<16, 16>, "clusters of 16 blocks"),
      bug("cluster_of_part_warpgroups", in_clusters<2, 2, 64>, "clusters of 2 blocks of 64 threads"),
      bug("cluster_of_too_many_threads", in_clusters<4, 4, 384>, "clusters of 4 blocks of 384 threads"),
  };
}

std::vector<Bug> correct_cluster_kernels() {
  return {
      bug("cluster_shares_tile", share<Without::nothing>, ""),
      bug("cluster_barrier", plainly<reads_others_numbers<true>>, ""),
  };
}

}  // namespace heed::testing
