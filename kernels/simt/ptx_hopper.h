// nvcc's side of hopper.h: one function per PTX instruction. Each has a twin of the same signature in
// host/ptx_hopper.h.
#pragma once

#include <cuda.h>

#include <heed/kernels/simt/ptx.h>

namespace heed::simt {

// Blocks of a cluster (Grid) have the same pieces of shared memory at the same place.

/// Which block of its cluster this is.
HEED_SIMT_DEVICE uint32_t block_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// __syncthreads() of all threads of the cluster. Its blocks begin with one, before one touches another's
/// shared memory, and end with one, or that memory might be gone.
HEED_SIMT_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/// An mbarrier: a phase ends when all arrivals have come and all bytes that were announced have been copied.
/// Phases are told apart by their parity, 0 for the first.
struct alignas(8) Mbarrier {
  uint64_t word;
};

/// By one thread; the others may use it after mbarrier_init_fence() of that thread and __syncthreads().
HEED_SIMT_DEVICE void mbarrier_init(Mbarrier& barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
               : "memory");
}
/// Makes the barriers that this thread has initialised known to copies by the TMA.
HEED_SIMT_DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
HEED_SIMT_DEVICE void mbarrier_arrive(Mbarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
/// Arrives, and announces `bytes` that copies will complete in this phase.
HEED_SIMT_DEVICE void mbarrier_arrive_expect(Mbarrier& barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}
/// Arrives at what lies in `barrier`'s place in a block of the cluster: what this thread has read is read.
/// What it wrote is not passed on to another block, which would take a fence of the whole device.
HEED_SIMT_DEVICE void mbarrier_arrive_at(Mbarrier& barrier, uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(block)
      : "memory");
}
/// Waits for the end of the phase of that parity.
HEED_SIMT_DEVICE void mbarrier_wait(Mbarrier& barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra end;\n"
      "bra again;\n"
      "end:\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

/// What this thread wrote to shared memory can be read by wgmma and the TMA from now on, once a barrier
/// orders it.
HEED_SIMT_DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// A matrix in global memory that the TMA copies boxes of; a __grid_constant__ parameter of the kernel.
/// Made by make_tensor_map().
using TensorMap = CUtensorMap;

/// The map of a bf16 matrix of three axes: `size` elements from the innermost on, the outer two `stride`
/// bytes apart (multiples of 16, as is the address), to be copied in boxes of `box` elements, whose rows of
/// 64 elements get the permuted chunks that matrix_descriptor() tells of. cudaErrorInvalidValue where the TMA
/// cannot do that.
inline cudaError_t make_tensor_map(TensorMap& map, const void* data, const uint64_t (&size)[3],
                                   const uint64_t (&stride)[2], const uint32_t (&box)[3]) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                               cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function)
                                                                        : nullptr;
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const uint32_t every[3] = {1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), size, stride, box, every,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

HEED_SIMT_DEVICE void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Begins to copy the box at (x, y, z) to shared memory, 1024-byte aligned, by one thread; `barrier` is told
/// of its bytes. What lies outside the matrix becomes zeros, and counts.
HEED_SIMT_DEVICE void tma_load(void* shared, const TensorMap& map, int x, int y, int z, Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

/// Likewise, to the same place in each block of the cluster whose bit `blocks` has; each one's `barrier` is
/// told.
HEED_SIMT_DEVICE void tma_load_multicast(void* shared, const TensorMap& map, int x, int y, int z,
                                         Mbarrier& barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

/// Begins to copy `bytes` from shared to global memory, by one thread, as part of its next group; addresses
/// and size are multiples of 16.
HEED_SIMT_DEVICE void bulk_store(void* global, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
/// Likewise, but each float is added to what is there, in L2.
HEED_SIMT_DEVICE void bulk_add(float* global, const float* shared, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
/// Ends a group of this thread's bulk copies.
HEED_SIMT_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until at most kGroupsInFlight of this thread's groups have not read all of their shared memory.
template <int kGroupsInFlight>
HEED_SIMT_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroupsInFlight) : "memory");
}
/// Waits until at most kGroupsInFlight of this thread's groups are under way; what the others wrote is there.
template <int kGroupsInFlight>
HEED_SIMT_DEVICE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroupsInFlight) : "memory");
}
/// What this thread knows to be in global memory is there for its bulk copies, too.
HEED_SIMT_DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// The matrix descriptor of wgmma for bf16 in tiles of 64 columns, each row 128 bytes with its 16-byte chunks
/// permuted as the TMA leaves them: chunk c of row r is where c ^ (r % 8) would be.
///
/// Columns along the product's inner dimension (K-major): `next` is not used. Rows along it (MN-major):
/// `next` is the bytes from a tile to the next 64 columns.
HEED_SIMT_DEVICE uint64_t matrix_descriptor(const void* tile, uint32_t next = 0) {
  constexpr uint64_t kEightRows = 1024, kSwizzle128 = uint64_t{1} << 62;
  return (shared_address(tile) & 0x3ffffu) >> 4 | uint64_t{next >> 4} << 16 | kEightRows >> 4 << 32 |
         kSwizzle128;
}

/// Orders this warp's accesses to registers and shared memory before the wgmma that follow.
HEED_SIMT_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
HEED_SIMT_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most kGroupsInFlight groups are under way.
template <int kGroupsInFlight>
HEED_SIMT_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroupsInFlight) : "memory");
}
/// Likewise; `results` are what the groups that have ended made.
template <int kGroupsInFlight, int... kTiles>
HEED_SIMT_DEVICE void wgmma_wait(float (&... results)[kTiles][4]) {
  wgmma_wait<kGroupsInFlight>();
  const auto hold = [](auto& result) {  // or the compiler might read them before
#pragma unroll
    for (auto& four : result)
#pragma unroll
      for (float& x : four) asm volatile("" : "+f"(x)::"memory");
  };
  (hold(results), ...);
}

/// How an operand lies in shared memory.
enum class Major { k, mn };

// The registers of a result as operands of asm, "=f" or "+f", and their names in it.
#define HEED_8_COLUMNS(use, j) use(d[j][0]), use(d[j][1]), use(d[j][2]), use(d[j][3])
#define HEED_64_COLUMNS(use)                                                                      \
  HEED_8_COLUMNS(use, 0), HEED_8_COLUMNS(use, 1), HEED_8_COLUMNS(use, 2), HEED_8_COLUMNS(use, 3), \
      HEED_8_COLUMNS(use, 4), HEED_8_COLUMNS(use, 5), HEED_8_COLUMNS(use, 6), HEED_8_COLUMNS(use, 7)
#define HEED_128_COLUMNS(use)                                                                             \
  HEED_64_COLUMNS(use), HEED_8_COLUMNS(use, 8), HEED_8_COLUMNS(use, 9), HEED_8_COLUMNS(use, 10),          \
      HEED_8_COLUMNS(use, 11), HEED_8_COLUMNS(use, 12), HEED_8_COLUMNS(use, 13), HEED_8_COLUMNS(use, 14), \
      HEED_8_COLUMNS(use, 15)
#define HEED_176_COLUMNS(use)                                                                       \
  HEED_128_COLUMNS(use), HEED_8_COLUMNS(use, 16), HEED_8_COLUMNS(use, 17), HEED_8_COLUMNS(use, 18), \
      HEED_8_COLUMNS(use, 19), HEED_8_COLUMNS(use, 20), HEED_8_COLUMNS(use, 21)
#define HEED_64_NAMES                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HEED_128_NAMES                                               \
  HEED_64_NAMES                                                      \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HEED_176_NAMES                                       \
  HEED_128_NAMES                                             \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77" \
  ",%78,%79,%80,%81,%82,%83,%84,%85,%86,%87"

// One asm, and the function of a number of columns with its two; `flag` and the like number operands.
#define HEED_PRODUCT(columns, operands, flag, use, ...)                                                  \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #flag                                                \
               ", 0;\n"                                                                                  \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" HEED_##columns##_NAMES \
               "}, " operands ";\n}"                                                                     \
               : HEED_##columns##_COLUMNS(use)                                                           \
               : __VA_ARGS__)
#define HEED_WGMMA(columns, operands, flag, ...)                \
  {                                                             \
    if (accumulate)                                             \
      HEED_PRODUCT(columns, operands, flag, "+f", __VA_ARGS__); \
    else                                                        \
      HEED_PRODUCT(columns, operands, flag, "=f", __VA_ARGS__); \
  }
#define HEED_WGMMA_OF_SHARED(columns, first, second, flag, turned_first, turned_second)                     \
  template <Major kB, Major kA = Major::k>                                                                  \
  HEED_SIMT_DEVICE void wgmma(float(&d)[columns / 8][4], uint64_t a, uint64_t b, bool accumulate)           \
      HEED_WGMMA(columns, "%" #first ", %" #second ", p, 1, 1, %" #turned_first ", %" #turned_second, flag, \
                 "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kA == Major::mn ? 1 : 0),           \
                 "n"(kB == Major::mn ? 1 : 0))
#define HEED_WGMMA_OF_REGISTERS(columns, a0, a1, a2, a3, second, flag, turned_second)                        \
  template <Major kB>                                                                                        \
  HEED_SIMT_DEVICE void wgmma(float(&d)[columns / 8][4], const uint32_t(&a)[4], uint64_t b, bool accumulate) \
      HEED_WGMMA(columns, "{%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #second ", p, 1, 1, %" #turned_second,  \
                 flag, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                                   \
                 "r"(static_cast<int>(accumulate)), "n"(kB == Major::mn ? 1 : 0))

/// d[64 x kColumns] (+)= a[64 x 16] b[16 x kColumns] by a group of four warps, in the background: d holds
/// sums in the layout of mma_m16n8k16, warp w rows 16 w to 16 w + 15, d[j] columns 8 j to 8 j + 7, and is not
/// to be touched until wgmma_wait(). a from shared memory, or from registers as mma_m16n8k16 takes it. Not
/// accumulating, d is overwritten, and until then its registers are free: each asm tells the compiler so.
HEED_WGMMA_OF_SHARED(64, 32, 33, 34, 35, 36)
HEED_WGMMA_OF_SHARED(128, 64, 65, 66, 67, 68)
HEED_WGMMA_OF_SHARED(176, 88, 89, 90, 91, 92)
HEED_WGMMA_OF_REGISTERS(64, 32, 33, 34, 35, 36, 37, 38)
HEED_WGMMA_OF_REGISTERS(128, 64, 65, 66, 67, 68, 69, 70)

#undef HEED_PRODUCT
#undef HEED_WGMMA
#undef HEED_WGMMA_OF_SHARED
#undef HEED_WGMMA_OF_REGISTERS
#undef HEED_8_COLUMNS
#undef HEED_64_COLUMNS
#undef HEED_128_COLUMNS
#undef HEED_176_COLUMNS
#undef HEED_64_NAMES
#undef HEED_128_NAMES
#undef HEED_176_NAMES

/// Gives registers of these four warps back to the block, or takes them: each of their threads then has
/// kRegisters. All warps of a block begin with what __launch_bounds__ leaves them.
template <int kRegisters>
HEED_SIMT_DEVICE void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
HEED_SIMT_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace heed::simt
