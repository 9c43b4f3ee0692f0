// The one place that decides which instruction sets the CPU kernels use.
#pragma once

#include <cstdint>

namespace heed::cpu {

/// baseline is x86-64-v2 (SSE4.2), or what the architecture always has elsewhere; amx is AVX-512 and products
/// of bf16 by the tile (AMX_BF16).
enum class Isa : uint8_t { baseline, avx2, avx512, amx };

/// "baseline", "avx2", "avx512" or "amx".
const char* name(Isa isa);

/// The best the machine has, but no better than HEED_ISA=baseline|avx2|avx512|amx allows. The first call
/// limits Highway to it; ConfigError if HEED_ISA has another value.
Isa isa();

/// Whether isa() is amx.
inline bool has_amx() { return isa() == Isa::amx; }

/// Whether isa() has AVX-512 and the processor dot products of bf16 (AVX512_BF16).
bool has_bf16_dot();

}  // namespace heed::cpu

/// The instance of a HWY_EXPORTed function for this machine: HEED_SIMD(f)(arguments). Unlike
/// HWY_DYNAMIC_DISPATCH it heeds HEED_ISA.
#define HEED_SIMD(f) (static_cast<void>(::heed::cpu::isa()), HWY_DYNAMIC_DISPATCH(f))
