// The one place that decides which instruction sets the CPU kernels use.
#pragma once

#include <cstdint>

namespace heed::cpu {

/// baseline is x86-64-v2 (SSE4.2), or what the architecture always has elsewhere.
enum class Isa : uint8_t { baseline, avx2, avx512 };

/// "baseline", "avx2" or "avx512".
const char* name(Isa isa);

/// The best the machine has, but no better than HEED_ISA=baseline|avx2|avx512 allows. The first call limits
/// Highway to it; ConfigError if HEED_ISA has another value.
Isa isa();

/// Whether isa() is avx512 and the processor has dot products of bf16 (AVX512_BF16).
bool has_bf16_dot();

/// Whether isa() is avx512 and the processor multiplies tiles of bf16 (AMX), which we leave to oneDNN.
bool has_bf16_tiles();

}  // namespace heed::cpu

/// The instance of a HWY_EXPORTed function for this machine: HEED_SIMD(f)(arguments). Unlike
/// HWY_DYNAMIC_DISPATCH it heeds HEED_ISA.
#define HEED_SIMD(f) (static_cast<void>(::heed::cpu::isa()), HWY_DYNAMIC_DISPATCH(f))
