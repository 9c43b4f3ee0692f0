// Streams, what they capture, and the one place through which every operation on them goes. Internal to the
// emulator.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <cuda_runtime.h>

#include <heed/kernels/simt/host/runtime/order.h>

namespace heed::emulator {

/// One of the things that a graph does: a node, or what orders the nodes of two captured streams.
struct GraphOperation {
  size_t lane;  // which of the streams it was in; 0 is the one that the capture began in
  std::function<void()> run;
};

}  // namespace heed::emulator

struct CUgraphNode_st {
  cudaGraphNodeType type;
};

struct CUgraph_st {
  std::vector<heed::emulator::GraphOperation> operations;
  std::deque<CUgraphNode_st> nodes;
  std::vector<cudaStream_t> streams;         // that are captured, by lane
  std::vector<heed::emulator::Clock> clock;  // by lane: of each lane the operations before what comes next
  std::vector<std::vector<cudaGraphNode_t>> depends_on;  // by lane: what comes next does, directly
  bool broken = false;  // something was called meanwhile that a capture forbids
};

struct CUstream_st {
  unsigned number;  // in StreamOrder
  std::shared_ptr<CUgraph_st> capture;
  size_t lane = 0;
};

struct CUevent_st {
  std::chrono::steady_clock::time_point recorded;
  bool is_recorded = false;
  heed::emulator::Clock clock;
  // Where it was last recorded in a stream that was being captured:
  std::weak_ptr<CUgraph_st> capture;
  heed::emulator::Clock captured;                   // the operations before it, by lane
  std::vector<cudaGraphNode_t> after;               // the nodes that it directly comes after
  std::shared_ptr<heed::emulator::Clock> in_graph;  // its clock in a launch of the graph
};

namespace heed::emulator {

/// Runs `operation` now (streams are synchronous), or records it as a node if `stream` is capturing.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> operation,
                    cudaGraphNodeType node = cudaGraphNodeTypeKernel);

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

/// What enqueue() does with an operation of a stream that is being captured, which may be no node.
cudaError_t capture(cudaStream_t stream, std::optional<cudaGraphNodeType> node,
                    std::function<void()> operation);
/// The same for the two calls by which streams wait for each other. By them a stream comes to be captured
/// too.
cudaError_t record_in_capture(cudaEvent_t event, cudaStream_t stream);
cudaError_t wait_in_capture(cudaStream_t stream, cudaEvent_t event);

/// What a call that a capture of `stream` forbids does: that capture cannot be finished any more.
cudaError_t refuse_in_capture(cudaStream_t stream);

/// The same for a call that names no stream, such as cudaMalloc: cudaSuccess unless this thread is capturing
/// and has not asked for cudaStreamCaptureModeRelaxed.
cudaError_t check_unsafe_call();

}  // namespace heed::emulator
