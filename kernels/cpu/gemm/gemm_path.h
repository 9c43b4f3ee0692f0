// The map of the matrix product on the CPU: how C [m, n] = A [m, k] B [k, n] is computed, and what chooses.
//
// The first row that applies (gemm_path() decides; docs/kernels/gemm.md explains):
//
//   path           when                                                          where
//   packed_copy    f32, f64: B is a weight that may stay packed; m <= 256, not   multiply_packed_copy
//                  AMX: decoding
//   dot            m <= 8, A by rows, B transposed                               gemm_dot-inl.h
//   amx            the processor has AMX; m >= 8 (bf16), or m >= 48 and k >= 24  gemm_amx.h
//   onednn         bf16 with AVX-512 but without its dot products                gemm_onednn.h
//   in_place       f32, f64: small operands whose rows lie close together        DirectProduct
//   column_strips  m <= 288, n >= 1,536: each task packs its own columns of B    multiply_column_strips
//   k_blocks       k > n and large: a piece of K at a time                       multiply_k_blocks
//   packed         all others: B is packed once for all blocks of C              multiply_packed
//
// What has no file of its own is in gemm_blocked.cpp.
#pragma once

#include <cstdint>

#include <heed/kernels/cpu/gemm/gemm_blocked.h>

namespace heed::cpu {

enum class GemmPath : uint8_t { packed_copy, dot, amx, onednn, in_place, column_strips, k_blocks, packed };

template <class T>
GemmPath gemm_path(const BlockedGemm<T>& product);

/// Whether A and B are read in place, unpacked: copies would not be nearer, and B is in whole panels.
template <class T>
bool reads_in_place(const BlockedGemm<T>& product);

/// Whether B is replicated: packed once for each half of the rows. Cache lines that move between cores are
/// slow, and so each of two threads has its own.
template <class T>
bool replicates_b(const BlockedGemm<T>& product);

/// What multiplies: `simd` by vectors, amx by AMX (or the same bits by plain loops where the processor has
/// none), `automatic` the fastest for the type, the shape and the instruction set.
enum class GemmBackend : uint8_t { automatic, simd, amx, onednn };

/// For tests and benchmarks. A product that the backend cannot do is done by `simd`.
void set_gemm_backend(GemmBackend backend);

/// Any but `automatic`.
template <class T>
GemmBackend gemm_backend(const BlockedGemm<T>& product);

/// Whether products that are large enough are done by AMX.
bool amx_enabled();

}  // namespace heed::cpu
