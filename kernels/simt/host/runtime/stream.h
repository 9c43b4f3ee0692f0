// Streams, and the one place through which every operation on them goes. Internal to the emulator.
#pragma once

#include <functional>

#include <cuda_runtime.h>

namespace heed::emulator {

/// Runs `operation` now (streams are synchronous), or records it if `stream` is capturing.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> operation);

/// Whether the handle is null, a built-in stream or one made by cudaStreamCreate and not destroyed.
bool is_stream(cudaStream_t stream);

}  // namespace heed::emulator
