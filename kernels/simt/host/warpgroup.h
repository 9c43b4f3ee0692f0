// Four warps that act together, the first a multiple of four. Internal to the emulator.
#pragma once

#include <cstdint>

#include <heed/kernels/simt/host/machine.h>

namespace heed::emulator {

constexpr unsigned kGroupThreads = 128;

/// Runs when the last thread of a warpgroup arrives; false keeps them all waiting, until retry_meetings().
using GroupFunction = bool (*)(unsigned group, void* const* operands, Location at);

/// Waits until all 128 threads of the warpgroup are here; `operand` of all goes to `function`.
void meet(const char* what, GroupFunction function, void* operand, Location at);

/// Fails on devices other than those of compute capability 9.0, for which such kernels are compiled.
void require_hopper(const char* what, Location at);

/// The byte of shared memory where the byte at `offset` of a matrix lies: chunks of 16 permuted in each 1024.
constexpr size_t swizzled(size_t offset) { return offset ^ (offset >> 7 & 7) << 4; }

}  // namespace heed::emulator
