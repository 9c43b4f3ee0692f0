// The functions of ../ptx_hopper.h, emulated. Operand layouts are those of the PTX ISA.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <cuda.h>

#include <heed/kernels/simt/host/builtins.h>

namespace heed::emulator {

// barrier.cpp
uint32_t block_in_cluster(Location at);
void sync_cluster(Location at);

// mbarrier.cpp
void init_mbarrier(uint64_t& word, uint32_t arrivals, Location at);
void fence_mbarrier_init(Location at);
void arrive_mbarrier(uint64_t& word, uint32_t bytes, const char* what, Location at);
void arrive_mbarrier_at(uint64_t& word, uint32_t block, Location at);
void wait_mbarrier(uint64_t& word, uint32_t parity, Location at);
void fence_async_shared(Location at);

// tensor_copy.cpp
cudaError_t encode_tensor_map(CUtensorMap& map, const void* data, const uint64_t* size,
                              const uint64_t* stride, const uint32_t* box);
void check_tensor_map(const CUtensorMap& map, const char* what, Location at);
void copy_box(void* shared, const CUtensorMap& map, int x, int y, int z, uint64_t& barrier, Location at);
void copy_box_to_blocks(void* shared, const CUtensorMap& map, int x, int y, int z, uint64_t& barrier,
                        uint32_t blocks, Location at);

// bulk_copy.cpp
void copy_bulk(void* global, const void* shared, uint32_t bytes, bool adds, Location at);
void commit_bulk(Location at);
void wait_bulk(int groups_in_flight, bool until_written, Location at);
void fence_async_global(Location at);

// warpgroup.cpp
void release_registers(int count, Location at);
void take_registers(int count, Location at);

// wgmma.cpp
struct ProductOperands {
  float* d;
  const uint32_t* a_registers;  // null: `a` is a descriptor
  uint64_t a, b;
  int columns;
  bool a_rows_inside, b_rows_inside;  // rows lie along the inner dimension: MN-major
  bool accumulate;
};
uint64_t matrix_descriptor(const void* tile, uint32_t next, Location at);
void issue_product(const ProductOperands& operands, Location at);
void fence_products(Location at);
void commit_products(Location at);
void wait_products(int groups_in_flight, std::initializer_list<const float*> results, Location at);

}  // namespace heed::emulator

namespace heed::simt {

inline uint32_t block_in_cluster(HEED_SIMT_AT) { return emulator::block_in_cluster(at); }
inline void cluster_sync(HEED_SIMT_AT) { emulator::sync_cluster(at); }

struct alignas(8) Mbarrier {
  uint64_t word;
};

inline void mbarrier_init(Mbarrier& barrier, uint32_t arrivals, HEED_SIMT_AT) {
  emulator::init_mbarrier(barrier.word, arrivals, at);
}
inline void mbarrier_init_fence(HEED_SIMT_AT) { emulator::fence_mbarrier_init(at); }
inline void mbarrier_arrive(Mbarrier& barrier, HEED_SIMT_AT) {
  emulator::arrive_mbarrier(barrier.word, 0, "mbarrier_arrive", at);
}
inline void mbarrier_arrive_expect(Mbarrier& barrier, uint32_t bytes, HEED_SIMT_AT) {
  emulator::arrive_mbarrier(barrier.word, bytes, "mbarrier_arrive_expect", at);
}
inline void mbarrier_wait(Mbarrier& barrier, uint32_t parity, HEED_SIMT_AT) {
  emulator::wait_mbarrier(barrier.word, parity, at);
}
inline void mbarrier_arrive_at(Mbarrier& barrier, uint32_t block, HEED_SIMT_AT) {
  emulator::arrive_mbarrier_at(barrier.word, block, at);
}
inline void fence_async_shared(HEED_SIMT_AT) { emulator::fence_async_shared(at); }

using TensorMap = CUtensorMap;

inline cudaError_t make_tensor_map(TensorMap& map, const void* data, const uint64_t (&size)[3],
                                   const uint64_t (&stride)[2], const uint32_t (&box)[3]) {
  return emulator::encode_tensor_map(map, data, size, stride, box);
}
inline void prefetch_tensor_map(const TensorMap& map, HEED_SIMT_AT) {
  emulator::check_tensor_map(map, "prefetch_tensor_map", at);
}
inline void tma_load(void* shared, const TensorMap& map, int x, int y, int z, Mbarrier& barrier,
                     HEED_SIMT_AT) {
  emulator::copy_box(shared, map, x, y, z, barrier.word, at);
}
inline void tma_load_multicast(void* shared, const TensorMap& map, int x, int y, int z, Mbarrier& barrier,
                               uint16_t blocks, HEED_SIMT_AT) {
  emulator::copy_box_to_blocks(shared, map, x, y, z, barrier.word, blocks, at);
}

inline void bulk_store(void* global, const void* shared, uint32_t bytes, HEED_SIMT_AT) {
  emulator::copy_bulk(global, shared, bytes, false, at);
}
inline void bulk_add(float* global, const float* shared, uint32_t bytes, HEED_SIMT_AT) {
  emulator::copy_bulk(global, shared, bytes, true, at);
}
inline void bulk_commit(HEED_SIMT_AT) { emulator::commit_bulk(at); }
template <int kGroupsInFlight>
void bulk_wait_read(HEED_SIMT_AT) {
  emulator::wait_bulk(kGroupsInFlight, false, at);
}
template <int kGroupsInFlight>
void bulk_wait(HEED_SIMT_AT) {
  emulator::wait_bulk(kGroupsInFlight, true, at);
}
inline void fence_async_global(HEED_SIMT_AT) { emulator::fence_async_global(at); }

inline uint64_t matrix_descriptor(const void* tile, uint32_t next = 0, HEED_SIMT_AT) {
  return emulator::matrix_descriptor(tile, next, at);
}
inline void wgmma_fence(HEED_SIMT_AT) { emulator::fence_products(at); }
inline void wgmma_commit(HEED_SIMT_AT) { emulator::commit_products(at); }
template <int kGroupsInFlight>
void wgmma_wait(HEED_SIMT_AT) {
  static_assert(kGroupsInFlight >= 0 && kGroupsInFlight <= 7);
  emulator::wait_products(kGroupsInFlight, {}, at);
}
template <int kGroupsInFlight, int kTiles>
void wgmma_wait(float (&result)[kTiles][4], HEED_SIMT_AT) {
  emulator::wait_products(kGroupsInFlight, {&result[0][0]}, at);
}
template <int kGroupsInFlight, int kTiles, int kOthers>
void wgmma_wait(float (&result)[kTiles][4], float (&other)[kOthers][4], HEED_SIMT_AT) {
  emulator::wait_products(kGroupsInFlight, {&result[0][0], &other[0][0]}, at);
}

enum class Major { k, mn };

template <Major kB, Major kA = Major::k, int kTiles>
void wgmma(float (&d)[kTiles][4], uint64_t a, uint64_t b, bool accumulate, HEED_SIMT_AT) {
  static_assert(kTiles == 8 || kTiles == 16 || kTiles == 22);
  emulator::issue_product({&d[0][0], nullptr, a, b, kTiles * 8, kA == Major::mn, kB == Major::mn, accumulate},
                          at);
}
template <Major kB, int kTiles>
void wgmma(float (&d)[kTiles][4], const uint32_t (&a)[4], uint64_t b, bool accumulate, HEED_SIMT_AT) {
  static_assert(kTiles == 8 || kTiles == 16);
  emulator::issue_product({&d[0][0], a, 0, b, kTiles * 8, false, kB == Major::mn, accumulate}, at);
}

template <int kRegisters>
void release_registers(HEED_SIMT_AT) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  emulator::release_registers(kRegisters, at);
}
template <int kRegisters>
void take_registers(HEED_SIMT_AT) {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  emulator::take_registers(kRegisters, at);
}

}  // namespace heed::simt
