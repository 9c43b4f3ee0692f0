// Streams, what they capture, and the one place through which every operation on them goes. Internal to the
// emulator.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime.h>

struct CUgraph_st {
  std::vector<std::function<void()>> operations;
  bool broken = false;  // something was called meanwhile that a capture forbids
};

struct CUstream_st {
  unsigned number;  // in StreamOrder
  std::unique_ptr<CUgraph_st> capture;
};

namespace heed::emulator {

/// Runs `operation` now (streams are synchronous), or records it if `stream` is capturing.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> operation);

/// Held by whatever runs operations or asks for their order.
std::recursive_mutex& operations_mutex();

/// In StreamOrder.
unsigned number_of(cudaStream_t stream);

/// The host has waited for all streams.
void wait_for_all();

/// Whether the handle is null, a built-in stream or one made by cudaStreamCreate and not destroyed.
bool is_stream(cudaStream_t stream);
bool is_built_in(cudaStream_t stream);

bool is_capturing(cudaStream_t stream);

/// What a call that a capture of `stream` forbids does: that capture cannot be finished any more.
cudaError_t refuse_in_capture(cudaStream_t stream);

/// The same for a call that names no stream, such as cudaMalloc: cudaSuccess unless this thread is capturing
/// and has not asked for cudaStreamCaptureModeRelaxed.
cudaError_t check_unsafe_call();

}  // namespace heed::emulator
