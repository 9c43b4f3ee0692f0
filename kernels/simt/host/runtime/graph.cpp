// The capture of a stream into a graph: what is enqueued is kept, to be done by every launch of the graph.
#include <algorithm>
#include <utility>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/order.h>
#include <heed/kernels/simt/host/runtime/stream.h>

struct CUgraphExec_st {
  std::vector<std::function<void()>> operations;
};

namespace heed::emulator {
namespace {

thread_local std::vector<cudaStream_t> captures_of_thread;  // that forbid unsafe calls
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

}  // namespace

bool is_capturing(cudaStream_t stream) { return !is_built_in(stream) && stream->capture != nullptr; }

cudaError_t refuse_in_capture(cudaStream_t stream) {
  stream->capture->broken = true;
  return report(cudaErrorStreamCaptureUnsupported);
}

cudaError_t check_unsafe_call() {
  if (captures_of_thread.empty() || mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  return refuse_in_capture(captures_of_thread.back());
}

}  // namespace heed::emulator

using namespace heed::emulator;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (is_built_in(stream)) return report(cudaErrorStreamCaptureUnsupported);
  if (!is_stream(stream)) return report(cudaErrorInvalidResourceHandle);
  if (stream->capture) return report(cudaErrorIllegalState);
  stream->capture = std::make_unique<CUgraph_st>();
  if (mode != cudaStreamCaptureModeRelaxed) captures_of_thread.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  *out = nullptr;
  if (is_built_in(stream) || !is_stream(stream) || !stream->capture) return report(cudaErrorIllegalState);
  const std::unique_ptr<CUgraph_st> graph = std::move(stream->capture);
  std::erase(captures_of_thread, stream);
  if (graph->broken) return report(cudaErrorStreamCaptureInvalidated);
  *out = new CUgraph_st{std::move(graph->operations)};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* out) {
  if (!is_stream(stream)) return report(cudaErrorInvalidResourceHandle);
  *out = is_capturing(stream)
             ? stream->capture->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive
             : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = new CUgraphExec_st{graph->operations};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return enqueue(stream, [stream, operations = graph->operations] {
    ++stats().graph_launches;
    for (const auto& operation : operations) {
      stream_order().begin(number_of(stream));
      operation();
    }
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
