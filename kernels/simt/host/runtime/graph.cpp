// The capture of streams into a graph: what is enqueued is kept, to be done by every launch of the graph.
// There each captured stream but the first stands for one that nothing but events orders.
#include <algorithm>
#include <utility>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/order.h>
#include <heed/kernels/simt/host/runtime/stream.h>

struct CUgraphExec_st {
  std::vector<heed::emulator::GraphOperation> operations;
  std::vector<unsigned> streams;  // in StreamOrder, by lane; the first is that of the launch
};

namespace heed::emulator {
namespace {

using heed::emulator::Clock;

thread_local std::vector<cudaStream_t> captures_of_thread;  // that forbid unsafe calls
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

uint32_t& count_of(Clock& clock, size_t lane) {
  if (clock.size() <= lane) clock.resize(lane + 1);
  return clock[lane];
}

void join(Clock& into, const Clock& from) {
  for (size_t lane = 0; lane < from.size(); ++lane)
    count_of(into, lane) = std::max(count_of(into, lane), from[lane]);
}

// Whether all that the other streams do is waited for by the one in which the capture began.
bool is_joined(CUgraph_st& graph) {
  for (size_t lane = 1; lane < graph.streams.size(); ++lane)
    if (count_of(graph.clock[0], lane) < count_of(graph.clock[lane], lane)) return false;
  return true;
}

void add_stream(const std::shared_ptr<CUgraph_st>& graph, cudaStream_t stream) {
  stream->capture = graph;
  stream->lane = graph->streams.size();
  graph->streams.push_back(stream);
  graph->clock.emplace_back();
  graph->depends_on.emplace_back();
}

cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  if (!is_capturing(stream)) return cudaStreamCaptureStatusNone;
  return stream->capture->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

}  // namespace

bool is_capturing(cudaStream_t stream) { return !is_built_in(stream) && stream->capture != nullptr; }

cudaError_t refuse_in_capture(cudaStream_t stream) {
  stream->capture->broken = true;
  return report(cudaErrorStreamCaptureUnsupported);
}

cudaError_t capture(cudaStream_t stream, std::optional<cudaGraphNodeType> node,
                    std::function<void()> operation) {
  CUgraph_st& graph = *stream->capture;
  if (graph.broken) return report(cudaErrorStreamCaptureInvalidated);
  ++count_of(graph.clock[stream->lane], stream->lane);
  graph.operations.push_back({stream->lane, std::move(operation)});
  if (node) graph.depends_on[stream->lane] = {&graph.nodes.emplace_back(CUgraphNode_st{*node})};
  return cudaSuccess;
}

cudaError_t record_in_capture(cudaEvent_t event, cudaStream_t stream) {
  std::lock_guard lock(operations_mutex());
  const auto clock = std::make_shared<Clock>();
  if (const cudaError_t error = capture(stream, std::nullopt, [clock] { *clock = stream_order().now(); });
      error != cudaSuccess)
    return error;
  event->capture = stream->capture;
  event->captured = stream->capture->clock[stream->lane];
  event->after = stream->capture->depends_on[stream->lane];
  event->in_graph = clock;
  return cudaSuccess;
}

cudaError_t wait_in_capture(cudaStream_t stream, cudaEvent_t event) {
  std::lock_guard lock(operations_mutex());
  const std::shared_ptr<CUgraph_st> graph = event->capture.lock();
  if (is_built_in(stream) || !is_stream(stream)) return report(cudaErrorStreamCaptureImplicit);
  if (is_capturing(stream) && stream->capture != graph) {
    stream->capture->broken = true;
    return report(graph ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation);
  }
  if (!is_capturing(stream)) add_stream(graph, stream);
  join(graph->clock[stream->lane], event->captured);
  std::vector<cudaGraphNode_t>& nodes = graph->depends_on[stream->lane];
  for (const cudaGraphNode_t node : event->after)
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  return capture(stream, std::nullopt,
                 [clock = event->in_graph] { stream_order().current_waits_for(*clock); });
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
  add_stream(std::make_shared<CUgraph_st>(), stream);
  if (mode != cudaStreamCaptureModeRelaxed) captures_of_thread.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  *out = nullptr;
  if (is_built_in(stream) || !is_stream(stream) || !stream->capture) return report(cudaErrorIllegalState);
  const std::shared_ptr<CUgraph_st> graph = stream->capture;
  if (stream->lane != 0) {
    graph->broken = true;
    return report(cudaErrorStreamCaptureUnmatched);
  }
  for (cudaStream_t captured : graph->streams) captured->capture = nullptr;
  std::erase(captures_of_thread, stream);
  if (graph->broken) return report(cudaErrorStreamCaptureInvalidated);
  if (!is_joined(*graph)) return report(cudaErrorStreamCaptureUnjoined);
  *out = new CUgraph_st(std::move(*graph));
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* out) {
  if (!is_stream(stream)) return report(cudaErrorInvalidResourceHandle);
  *out = status_of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  if (!is_stream(stream)) return report(cudaErrorInvalidResourceHandle);
  if (id != nullptr || graph != nullptr) return report(cudaErrorInvalidValue);  // not to be had here
  *status = status_of(stream);
  if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
  const std::vector<cudaGraphNode_t>& depends_on = stream->capture->depends_on[stream->lane];
  if (nodes != nullptr) *nodes = depends_on.data();
  if (edges != nullptr) *edges = nullptr;  // all are ordinary
  if (count != nullptr) *count = depends_on.size();
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->type;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  std::lock_guard lock(operations_mutex());
  *out = new CUgraphExec_st{graph->operations, {}};
  while ((*out)->streams.size() < graph->streams.size())
    (*out)->streams.push_back(stream_order().new_stream(false));
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes != nullptr) return report(cudaErrorInvalidValue);  // they are not to be had here, only counted
  *count = graph->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  auto run = [stream, graph = *graph] {
    ++stats().graph_launches;
    for (const GraphOperation& operation : graph.operations) {
      stream_order().begin(operation.lane == 0 ? number_of(stream) : graph.streams[operation.lane]);
      operation.run();
    }
  };
  return enqueue(stream, std::move(run), cudaGraphNodeTypeGraph);
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
