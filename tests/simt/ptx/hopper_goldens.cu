// The cases of ptx_hopper.h, compiled for compute_90a alone.
#include <heed/kernels/simt/hopper.h>

#include "ptx_goldens.h"

namespace heed::testing {
namespace {

constexpr int kGroup = 128;        // threads of a warpgroup
constexpr int kPanelColumns = 64;  // of bf16: 128 bytes
constexpr uint32_t kRowBytes = 128;

__device__ int small(int i, int j, int salt) { return (i * 37 + j * 11 + salt * 5) % 9 - 4; }

__device__ uint16_t encode(int value) {  // exact for small integers
  return static_cast<uint16_t>(__float_as_uint(static_cast<float>(value)) >> 16);
}

__device__ uint32_t fold(uint32_t sum, uint32_t word) { return ((sum ^ word) * 0x01000193u) & 0x7fffffffu; }

// All sums of a thread in one word.
template <int kTiles>
__device__ uint32_t fold(const float (&d)[kTiles][4]) {
  uint32_t sum = 1;
  for (const auto& four : d)
    for (int i = 0; i < 4; ++i) sum = fold(sum, static_cast<uint32_t>(static_cast<int>(four[i])));
  return sum;
}

// Where d[tile][i] of a thread lies in the rows of its warpgroup.
__device__ int row_of(int i) { return threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8; }
__device__ int column_of(int tile, int i) { return tile * 8 + threadIdx.x % 4 * 2 + i % 2; }

// How many of a thread's sums are not begin(i) + sum over k of a(row, k) b(column, k).
template <int kTiles, class Begin, class A, class B>
__device__ uint32_t wrong_sums(const float (&d)[kTiles][4], int inner, Begin begin, A a, B b) {
  uint32_t wrong = 0;
  for (int tile = 0; tile < kTiles; ++tile)
    for (int i = 0; i < 4; ++i) {
      int sum = begin(i);
      for (int k = 0; k < inner; ++k) sum += a(row_of(i), k) * b(column_of(tile, i), k);
      wrong += d[tile][i] != static_cast<float>(sum);
    }
  return wrong;
}

// A matrix in panels of 64 columns, chunks permuted as the TMA leaves them.
template <int kRows, int kColumns>
struct alignas(1024) Panels {
  uint16_t value[kColumns / kPanelColumns][kRows][kPanelColumns];

  __device__ void fill(int salt) {
    for (int i = threadIdx.x; i < kRows * kColumns; i += blockDim.x) {
      const int row = i / kColumns, column = i % kColumns, chunk = column % kPanelColumns / 8 ^ row % 8;
      value[column / kPanelColumns][row][chunk * 8 + column % 8] = encode(small(row, column, salt));
    }
  }
};

template <int kRowsA, class B>
struct Operands {
  Panels<kRowsA, 64> a;
  B b;
};

// What a thread holds of a [64 x 64] whose rows are those of its warpgroup, as the first operand of step
// `step`.
__device__ void take_a(uint32_t (&a)[4], int step, int salt) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
  for (int i = 0; i < 4; ++i) {
    const int row = warp * 16 + lane / 4 + i % 2 * 8, column = step * 16 + lane % 4 * 2 + i / 2 * 8;
    a[i] = encode(small(row, column, salt)) | static_cast<uint32_t>(encode(small(row, column + 1, salt)))
                                                  << 16;
  }
}

// 64 rows of a by b, which lies as kB says; added to the sums of before if
// kAccumulate. Of each thread: its sums, and how many of them are wrong.
enum class From { rows, columns, registers };  // where a is: rows or columns of shared memory, or registers

template <int kColumns, simt::Major kB, From kA, bool kAccumulate>
__global__ void __launch_bounds__(kGroup) wgmma_case(const uint32_t*, uint32_t* out) {
  constexpr int kRowsA = 128, kFirstRow = kA == From::rows ? 64 : 0;
  constexpr bool kRowsInside = kB == simt::Major::mn;
  using B = Panels<kRowsInside ? 64 : kColumns, kRowsInside ? kColumns : 64>;
  simt::Arena<1024> arena;
  auto& operands = *arena.take<Operands<kRowsA, B>>(1, 1024);
  operands.a.fill(1);
  operands.b.fill(2);
  simt::fence_async_shared();
  __syncthreads();
  float d[kColumns / 8][4];
  for (auto& four : d)
    for (int i = 0; i < 4; ++i) four[i] = static_cast<float>(small(threadIdx.x, i, 3));
  uint32_t a[4][4];
  for (int step = 0; step < 4; ++step) take_a(a[step], step, 1);
  simt::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint64_t b = kRowsInside
                           ? simt::matrix_descriptor(operands.b.value[0][step * 16], 64 * kRowBytes)
                           : simt::matrix_descriptor(operands.b.value) + static_cast<uint64_t>(step) * 2;
    const bool accumulate = kAccumulate || step != 0;
    if constexpr (kA == From::registers)
      simt::wgmma<kB>(d, a[step], b, accumulate);
    else if constexpr (kA == From::columns)
      simt::wgmma<kB, simt::Major::mn>(d, simt::matrix_descriptor(operands.a.value[0][64 + step * 16]), b,
                                       accumulate);
    else
      simt::wgmma<kB>(d, simt::matrix_descriptor(operands.a.value[0][kFirstRow] + step * 16), b, accumulate);
  }
  simt::wgmma_commit();
  simt::wgmma_wait<0>(d);
  out[threadIdx.x] = fold(d);
  out[kGroup + threadIdx.x] = wrong_sums(
      d, 64, [](int i) { return kAccumulate ? small(threadIdx.x, i, 3) : 0; },
      [](int row, int k) {
        return kA == From::columns ? small(64 + k, row, 1) : small(kFirstRow + row, k, 1);
      },
      [](int column, int k) { return kRowsInside ? small(k, column, 2) : small(column, k, 2); });
}

template <int kColumns, simt::Major kB, From kA, bool kAccumulate>
void launch_wgmma(const uint32_t* in, uint32_t* out) {
  constexpr size_t kBytes = (128 + kColumns) * kRowBytes;
  static_cast<void>(simt::launch(wgmma_case<kColumns, kB, kA, kAccumulate>, dim3(1), dim3(kGroup), kBytes,
                                 nullptr, in, out));
}

// Two products under way at the same time, of which the first is waited for first; by two warpgroups. Of each
// thread: how many of its sums are wrong.
__global__ void __launch_bounds__(2 * kGroup) groups_case(const uint32_t*, uint32_t* out) {
  simt::Arena<1024> arena;
  auto& operands = *arena.take<Operands<128, Panels<64, 64>>>(1, 1024);
  operands.a.fill(4);
  operands.b.fill(5);
  simt::fence_async_shared();
  __syncthreads();
  const int group = threadIdx.x / kGroup;
  float first[8][4], second[8][4];
  const uint64_t a = simt::matrix_descriptor(operands.a.value[0][64 * group]);
  const uint64_t b = simt::matrix_descriptor(operands.b.value);
  simt::wgmma_fence();
  simt::wgmma<simt::Major::k>(first, a, b, false);
  simt::wgmma_commit();
  simt::wgmma<simt::Major::mn>(second, a, b, false);
  simt::wgmma_commit();
  simt::wgmma_wait<1>(first);
  const auto of_a = [&](int row, int k) { return small(64 * group + row, k, 4); };
  out[threadIdx.x] = wrong_sums(
      first, 16, [](int) { return 0; }, of_a, [](int column, int k) { return small(column, k, 5); });
  simt::wgmma_wait<0>(second);
  out[2 * kGroup + threadIdx.x] = wrong_sums(
      second, 16, [](int) { return 0; }, of_a, [](int column, int k) { return small(k, column, 5); });
}

void launch_groups(const uint32_t* in, uint32_t* out) {
  static_cast<void>(
      simt::launch(groups_case, dim3(1), dim3(2 * kGroup), (128 + 64) * kRowBytes, nullptr, in, out));
}

// The input as a matrix [3, 5, 56] whose rows are 64 elements apart; boxes of [2, 4, 64]. The words of a box,
// and how many of those of each thread are wrong.
constexpr int kBoxWords = 2 * 4 * 32;

__device__ uint32_t word_of_box(const uint32_t* in, int x, int y, int z, int i) {
  const int row = i / 32, column = x + (i % 32 / 4 ^ row % 8) * 8 + i % 4 * 2;
  y += row % 4, z += row / 4;
  const bool inside = column >= 0 && column < 56 && y >= 0 && y < 5 && z >= 0 && z < 3;
  return inside ? in[z * 160 + y * 32 + column / 2] : 0;
}

struct alignas(1024) Box {
  uint32_t word[kBoxWords];
  simt::Mbarrier ready;
};

__global__ void tma_case(const __grid_constant__ simt::TensorMap map, int x, int y, int z, const uint32_t* in,
                         uint32_t* out) {
  auto& box = simt::shared<Box>();
  if (threadIdx.x == 0) {
    simt::prefetch_tensor_map(map);
    simt::mbarrier_init(box.ready, 1);
    simt::mbarrier_init_fence();
    simt::mbarrier_arrive_expect(box.ready, sizeof box.word);
    simt::tma_load(box.word, map, x, y, z, box.ready);
  }
  __syncthreads();
  simt::mbarrier_wait(box.ready, 0);
  uint32_t wrong = 0;
  for (int i = threadIdx.x; i < kBoxWords; i += 32) {
    out[i] = box.word[i];
    wrong += box.word[i] != word_of_box(in, x, y, z, i);
  }
  out[kBoxWords + threadIdx.x] = wrong;
}

template <int kX, int kY, int kZ>
void launch_tma(const uint32_t* in, uint32_t* out) {
  simt::TensorMap map;
  if (simt::make_tensor_map(map, in, {56, 5, 3}, {128, 640}, {64, 4, 2}) != cudaSuccess) return;
  static_cast<void>(simt::launch(tma_case, dim3(1), dim3(32), 0, nullptr, map, kX, kY, kZ, in, out));
}

// Which maps there can be: a word of 1 for each that is refused.
void try_maps(const uint32_t* in, uint32_t* out) {
  const char* const byte = reinterpret_cast<const char*>(in);
  simt::TensorMap map;
  const uint32_t refused[] = {
      simt::make_tensor_map(map, byte, {64, 4, 2}, {128, 512}, {64, 4, 1}) != cudaSuccess,
      simt::make_tensor_map(map, byte + 16, {8, 4, 1}, {16, 16}, {64, 256, 1}) != cudaSuccess,
      simt::make_tensor_map(map, byte + 8, {64, 4, 2}, {128, 512}, {64, 4, 1}) != cudaSuccess,
      simt::make_tensor_map(map, byte, {64, 4, 2}, {136, 512}, {64, 4, 1}) != cudaSuccess,
      simt::make_tensor_map(map, byte, {64, 4, 2}, {128, 520}, {64, 4, 1}) != cudaSuccess,
      simt::make_tensor_map(map, byte, {64, 0, 2}, {128, 512}, {64, 4, 1}) != cudaSuccess,
      simt::make_tensor_map(map, byte, {64, 4, 2}, {128, 512}, {72, 4, 1}) != cudaSuccess,
      simt::make_tensor_map(map, byte, {64, 4, 2}, {128, 512}, {64, 257, 1}) != cudaSuccess,
      simt::make_tensor_map(map, byte, {64, 4, 2}, {128, 512}, {64, 0, 1}) != cudaSuccess,
  };
  static_cast<void>(cudaMemcpy(out, refused, sizeof refused, cudaMemcpyHostToDevice));
}

// A ring of two boxes that one warp fills and three others read, six in all, each announced or not at its
// arrival.
struct Ring {
  Box stage[2];
  simt::Mbarrier free[2];
};

__global__ void ring_case(const __grid_constant__ simt::TensorMap map, uint32_t* out) {
  constexpr int kBoxes = 6, kReaders = 96;
  auto& ring = simt::shared<Ring>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      simt::mbarrier_init(ring.stage[i].ready, 2);
      simt::mbarrier_init(ring.free[i], kReaders);
    }
    simt::mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int i = 0; i < kBoxes && threadIdx.x == 0; ++i) {
      Box& box = ring.stage[i % 2];
      simt::mbarrier_wait(ring.free[i % 2], i / 2 % 2 ^ 1);
      simt::mbarrier_arrive(box.ready);
      simt::mbarrier_arrive_expect(box.ready, sizeof box.word);
      simt::tma_load(box.word, map, 0, i % 3, i % 2, box.ready);
    }
    return;
  }
  uint32_t sum = 1;
  for (int i = 0; i < kBoxes; ++i) {
    Box& box = ring.stage[i % 2];
    simt::mbarrier_wait(box.ready, i / 2 % 2);
    for (int j = threadIdx.x; j < kBoxWords; j += 7) sum = fold(sum, box.word[j]);
    simt::mbarrier_arrive(ring.free[i % 2]);
  }
  out[threadIdx.x - 32] = sum;
}

void launch_ring(const uint32_t* in, uint32_t* out) {
  simt::TensorMap map;
  if (simt::make_tensor_map(map, in, {56, 5, 3}, {128, 640}, {64, 4, 2}) != cudaSuccess) return;
  static_cast<void>(simt::launch(ring_case, dim3(1), dim3(128), 0, nullptr, map, out));
}

// Two clusters of two blocks. In each round a block loads a box of half a tile for both, in the last one the
// whole of it for the other alone, and every warp tells both when it has read it.
constexpr int kClusterBlocks = 4, kClusterThreads = 128, kTogether = 2, kHalfBox = kBoxWords;

struct alignas(1024) SharedBoxes {
  uint32_t word[kTogether][kHalfBox];
  simt::Mbarrier ready, free;
};

__global__ void cluster_case(const __grid_constant__ simt::TensorMap map, const uint32_t* in, uint32_t* out) {
  constexpr int kRounds = 5;
  auto& boxes = simt::shared<SharedBoxes>();
  const uint32_t block = simt::block_in_cluster(), other = kTogether - 1 - block;
  const int cluster = static_cast<int>(blockIdx.x) / kTogether;
  if (threadIdx.x == 0) {
    simt::mbarrier_init(boxes.ready, 1);
    simt::mbarrier_init(boxes.free, kTogether * kClusterThreads / 32);
    simt::mbarrier_init_fence();
  }
  simt::cluster_sync();
  uint32_t sum = block + 1, wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (threadIdx.x == 0) {
      simt::mbarrier_wait(boxes.free, round % 2 ^ 1);
      simt::mbarrier_arrive_expect(boxes.ready, sizeof boxes.word);
      const auto load = [&](uint32_t half, uint16_t blocks) {
        simt::tma_load_multicast(boxes.word[half], map, 0, round - static_cast<int>(half), cluster,
                                 boxes.ready, blocks);
      };
      if (round + 1 < kRounds) {
        load(block, 3);
      } else {
        load(block, static_cast<uint16_t>(1u << other));
        load(other, static_cast<uint16_t>(1u << other));
      }
    }
    simt::mbarrier_wait(boxes.ready, round % 2);
    for (int i = threadIdx.x; i < kTogether * kHalfBox; i += 7) {
      const int half = i / kHalfBox, place = i % kHalfBox;
      sum = fold(sum, boxes.word[half][place]);
      wrong += boxes.word[half][place] != word_of_box(in, 0, round - half, cluster, place);
    }
    __syncwarp();
    if (threadIdx.x % 32 < kTogether) simt::mbarrier_arrive_at(boxes.free, threadIdx.x % 32);
  }
  const uint32_t thread = blockIdx.x * kClusterThreads + threadIdx.x;
  out[thread] = sum;
  out[kClusterBlocks * kClusterThreads + thread] = wrong;
  simt::cluster_sync();
}

void launch_clusters(const uint32_t* in, uint32_t* out) {
  simt::TensorMap map;
  if (simt::make_tensor_map(map, in, {56, 5, 3}, {128, 640}, {64, 4, 2}) != cudaSuccess) return;
  static_cast<void>(simt::launch(cluster_case, simt::Grid(dim3(kClusterBlocks), kTogether),
                                 dim3(kClusterThreads), 0, nullptr, map, in, out));
}

// Four blocks in turn, each after the one before has added its integers to those of the input: a word is that
// of the input, then 1 + 2 + 3 times a number more. The shared memory is written again as soon as it was
// read.
constexpr int kBulkWords = 128, kBulkBlocks = 4;

struct alignas(16) Bulk {
  float number[kBulkWords];
  unsigned block;
};

// counters: how many blocks have begun, and how many have added.
__global__ void bulk_case(const uint32_t* in, float* sums, unsigned* counters, uint32_t* out) {
  auto& bulk = simt::shared<Bulk>();
  if (threadIdx.x == 0) bulk.block = atomicAdd(counters, 1u);
  __syncthreads();
  const unsigned i = threadIdx.x, block = bulk.block;
  bulk.number[i] = static_cast<float>(block == 0 ? in[i] % 1000 : block * (i + 1));
  simt::fence_async_shared();
  __syncthreads();
  if (i == 0) {
    if (block == 0) {
      simt::bulk_store(sums, bulk.number, sizeof bulk.number);
    } else {
      while (atomicAdd(counters + 1, 0u) != block) simt::spin_pause();
      __threadfence();
      simt::fence_async_global();
      simt::bulk_add(sums, bulk.number, sizeof bulk.number);
    }
    simt::bulk_commit();
    simt::bulk_wait_read<0>();
  }
  __syncthreads();
  bulk.number[i] = -1.0f;
  if (i == 0) {
    simt::bulk_wait<0>();
    __threadfence();
    atomicExch(counters + 1, block + 1);
  }
  if (block + 1 < kBulkBlocks) return;
  __syncthreads();
  out[i] = static_cast<uint32_t>(sums[i]);
}

void launch_bulk(const uint32_t* in, uint32_t* out) {
  float* sums = nullptr;
  constexpr size_t kBytes = kBulkWords * sizeof(float);
  if (cudaMalloc(&sums, kBytes + 16) != cudaSuccess) return;
  auto* const counters = reinterpret_cast<unsigned*>(sums + kBulkWords);
  if (cudaMemset(counters, 0, 2 * sizeof *counters) == cudaSuccess)
    static_cast<void>(
        simt::launch(bulk_case, dim3(kBulkBlocks), dim3(kBulkWords), 0, nullptr, in, sums, counters, out));
  static_cast<void>(cudaDeviceSynchronize());
  static_cast<void>(cudaFree(sums));
}

__global__ void __launch_bounds__(3 * kGroup, 1) registers_case(const uint32_t* in, uint32_t* out) {
  const uint32_t word = in[threadIdx.x];
  if (threadIdx.x < kGroup)
    simt::release_registers<24>();
  else
    simt::take_registers<240>();
  out[threadIdx.x] = fold(1, word);
}

void launch_registers(const uint32_t* in, uint32_t* out) {
  static_cast<void>(simt::launch(registers_case, dim3(1), dim3(3 * kGroup), 0, nullptr, in, out));
}

constexpr simt::Major kK = simt::Major::k, kMn = simt::Major::mn;

}  // namespace

const std::vector<GoldenCase>& hopper_golden_cases() {
  static const std::vector<GoldenCase> cases{
      {"hopper_wgmma_k_64", "wgmma wgmma_fence wgmma_commit wgmma_wait matrix_descriptor fence_async_shared",
       2 * kGroup, launch_wgmma<64, kK, From::rows, false>},
      {"hopper_wgmma_k_128", "wgmma", 2 * kGroup, launch_wgmma<128, kK, From::rows, true>},
      {"hopper_wgmma_mn_64", "wgmma", 2 * kGroup, launch_wgmma<64, kMn, From::rows, true>},
      {"hopper_wgmma_mn_128", "wgmma", 2 * kGroup, launch_wgmma<128, kMn, From::rows, false>},
      {"hopper_wgmma_registers_k_64", "wgmma", 2 * kGroup, launch_wgmma<64, kK, From::registers, true>},
      {"hopper_wgmma_registers_k_128", "wgmma", 2 * kGroup, launch_wgmma<128, kK, From::registers, false>},
      {"hopper_wgmma_registers_mn_64", "wgmma", 2 * kGroup, launch_wgmma<64, kMn, From::registers, false>},
      {"hopper_wgmma_registers_mn_128", "wgmma", 2 * kGroup, launch_wgmma<128, kMn, From::registers, true>},
      {"hopper_wgmma_k_176", "wgmma", 2 * kGroup, launch_wgmma<176, kK, From::rows, true>},
      {"hopper_wgmma_columns_k_64", "wgmma", 2 * kGroup, launch_wgmma<64, kK, From::columns, true>},
      {"hopper_wgmma_columns_mn_64", "wgmma", 2 * kGroup, launch_wgmma<64, kMn, From::columns, false>},
      {"hopper_wgmma_columns_mn_128", "wgmma", 2 * kGroup, launch_wgmma<128, kMn, From::columns, true>},
      {"hopper_wgmma_groups", "wgmma_wait", 4 * kGroup, launch_groups},
      {"hopper_tma_inside", "tma_load make_tensor_map prefetch_tensor_map", kBoxWords + 32,
       launch_tma<0, 0, 0>},
      {"hopper_tma_end", "tma_load", kBoxWords + 32, launch_tma<8, 3, 2>},
      {"hopper_tma_before", "tma_load", kBoxWords + 32, launch_tma<-16, -1, -1>},
      {"hopper_tma_outside", "tma_load", kBoxWords + 32, launch_tma<64, 0, 0>},
      {"hopper_maps", "make_tensor_map", 9, try_maps},
      {"hopper_mbarriers",
       "mbarrier_init mbarrier_init_fence mbarrier_arrive mbarrier_arrive_expect mbarrier_wait", 96,
       launch_ring},
      {"hopper_clusters", "block_in_cluster cluster_sync mbarrier_arrive_at tma_load_multicast",
       2 * kClusterBlocks * kClusterThreads, launch_clusters},
      {"hopper_bulk_copies", "bulk_store bulk_add bulk_commit bulk_wait_read bulk_wait fence_async_global",
       kBulkWords, launch_bulk},
      {"hopper_registers", "release_registers take_registers", 3 * kGroup, launch_registers},
  };
  return cases;
}

}  // namespace heed::testing
