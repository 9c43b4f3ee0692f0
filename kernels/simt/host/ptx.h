// The functions of ../ptx.h, emulated. Operand layouts are those of the PTX ISA.
#pragma once

#include <cmath>
#include <cstdint>

#include <heed/kernels/simt/host/builtins.h>

namespace heed::emulator {
void copy_async(void* shared, const void* global, int bytes, bool valid, Location at);
void commit_copies(Location at);
void wait_copies(int groups_in_flight, Location at);
void load_matrices(uint32_t* out, int count, bool transposed, const void* row, const char* what, Location at);
void multiply_m16n8k16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, bool is_bf16, Location at);
void wait_for_kernels_before(Location at);
}  // namespace heed::emulator

namespace heed::simt {

inline void griddepcontrol_wait(HEED_SIMT_AT) { emulator::wait_for_kernels_before(at); }
inline void griddepcontrol_launch_dependents() {}  // these wait until all is over, whenever they begin

inline int opaque(int x) { return x; }

inline float exp2_approx(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}
inline float rcp_approx(float x) { return 1.0f / x; }

template <int kBytes>
void cp_async(void* shared, const void* global, bool valid = true, HEED_SIMT_AT) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emulator::copy_async(shared, global, kBytes, valid, at);
}
inline void cp_async_commit(HEED_SIMT_AT) { emulator::commit_copies(at); }
template <int kGroupsInFlight>
void cp_async_wait(HEED_SIMT_AT) {
  emulator::wait_copies(kGroupsInFlight, at);
}

/// A row's address with bits turned over, and so many bytes on.
inline const void* turned_address(const void* row, uint32_t turned, uint32_t further) {
  return reinterpret_cast<const unsigned char*>(reinterpret_cast<uintptr_t>(row) ^ turned) + further;
}

inline void ldmatrix_x1(uint32_t (&out)[1], const void* row, HEED_SIMT_AT) {
  emulator::load_matrices(out, 1, false, row, "ldmatrix_x1", at);
}
inline void ldmatrix_x2(uint32_t (&out)[2], const void* row, HEED_SIMT_AT) {
  emulator::load_matrices(out, 2, false, row, "ldmatrix_x2", at);
}
inline void ldmatrix_x4(uint32_t (&out)[4], const void* row, uint32_t turned = 0, uint32_t further = 0,
                        HEED_SIMT_AT) {
  emulator::load_matrices(out, 4, false, turned_address(row, turned, further), "ldmatrix_x4", at);
}
inline void ldmatrix_x1_trans(uint32_t (&out)[1], const void* row, HEED_SIMT_AT) {
  emulator::load_matrices(out, 1, true, row, "ldmatrix_x1_trans", at);
}
inline void ldmatrix_x2_trans(uint32_t (&out)[2], const void* row, HEED_SIMT_AT) {
  emulator::load_matrices(out, 2, true, row, "ldmatrix_x2_trans", at);
}
inline void ldmatrix_x4_trans(uint32_t (&out)[4], const void* row, uint32_t turned = 0, uint32_t further = 0,
                              HEED_SIMT_AT) {
  emulator::load_matrices(out, 4, true, turned_address(row, turned, further), "ldmatrix_x4_trans", at);
}

inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, HEED_SIMT_AT) {
  emulator::multiply_m16n8k16(d, a, b0, b1, true, at);
}
inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, HEED_SIMT_AT) {
  emulator::multiply_m16n8k16(d, a, b0, b1, false, at);
}

inline void barrier_sync(int id, int threads, HEED_SIMT_AT) {
  emulator::named_barrier(id, threads, true, at);
}
inline void barrier_arrive(int id, int threads, HEED_SIMT_AT) {
  emulator::named_barrier(id, threads, false, at);
}
inline void spin_pause(HEED_SIMT_AT) { emulator::spin(at); }

}  // namespace heed::simt
