// Who multiplies.
#pragma once

#include <cstdint>

#include <heed/kernels/cpu/gemm/gemm_block.h>

namespace heed::cpu {

/// `own` is by vectors, amx by tiles (plainly where the processor has none, to the same bits), and
/// `automatic` the fastest for the type, the shape and the instruction set.
enum class GemmBackend : uint8_t { automatic, own, amx, onednn };

/// For tests and benchmarks. A product that the backend cannot do is done by `own`.
void set_gemm_backend(GemmBackend backend);

/// Whether products that are large enough are done by tiles.
bool multiplies_by_tiles();

/// Any but `automatic`.
template <class T>
GemmBackend gemm_backend(const BlockedGemm<T>& product);

}  // namespace heed::cpu
