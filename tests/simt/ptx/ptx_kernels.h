// Kernels that execute one PTX instruction each on given operands. All pointers are to device memory.
#pragma once

#include <cstdint>

namespace heed::testing {

/// in: 32 rows of 8 elements; out: [lane][count].
void run_ldmatrix(int count, bool transposed, const uint16_t* in, uint32_t* out);

/// The same of four matrices, with bits of the addresses turned over, and then 128 bytes on.
void run_turned_ldmatrix(bool transposed, const uint16_t* in, uint32_t* out);

/// d[16, 8] += a[16, 16] b[16, 8], row-major; each lane fetches its own fragments as the PTX manual lays them
/// out.
void run_mma(bool is_bf16, const uint16_t* a, const uint16_t* b, float* d);

/// The same product with its operands brought by ldmatrix.
void run_mma_after_ldmatrix(const uint16_t* a, const uint16_t* b, float* d);

/// out[i] = in[i] for the first `valid` of 32 pieces of `bytes` bytes, zeros for the others.
void run_cp_async(int bytes, int valid, const unsigned char* in, unsigned char* out);

/// out[i] = in[i] for 32 numbers that pass through opaque().
void run_opaque(const int* in, int* out);

/// out[i] = 2^in[i] for 32 values.
void run_exp2(const float* in, float* out);

/// Reads eight rows of 16 bytes that are 128 bytes apart, as they lie or with their 16-byte columns exchanged
/// by row.
void run_strided_ldmatrix(bool swizzled, uint32_t* out);

}  // namespace heed::testing
