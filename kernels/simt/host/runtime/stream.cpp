// Streams and events. Work is done when it is enqueued, so waiting is trivial.
#include <mutex>
#include <set>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/launch.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/order.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::emulator {
namespace {

std::mutex streams_mutex;

std::set<cudaStream_t>& streams() {
  static auto* const all = new std::set<cudaStream_t>;
  return *all;
}

template <class What>
void host_waits_for(const What& what) {
  std::lock_guard lock(operations_mutex());
  stream_order().host_waits_for(what);
}

}  // namespace

bool is_built_in(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

bool is_stream(cudaStream_t stream) {
  if (is_built_in(stream)) return true;
  std::lock_guard lock(streams_mutex);
  return streams().count(stream) != 0;
}

std::recursive_mutex& operations_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

unsigned number_of(cudaStream_t stream) {
  if (!is_built_in(stream)) return stream->number;
  static const unsigned per_thread = stream_order().new_stream(true);
  return stream == cudaStreamPerThread ? per_thread : 0;
}

void wait_for_all() {
  std::lock_guard lock(operations_mutex());
  stream_order().host_waits_for_all();
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> operation, cudaGraphNodeType node) {
  if (!is_stream(stream)) return report(cudaErrorInvalidResourceHandle);
  std::lock_guard lock(operations_mutex());
  if (is_capturing(stream)) return capture(stream, node, std::move(operation));
  stream_order().begin(number_of(stream));
  operation();
  return cudaSuccess;
}

cudaError_t submit(Launch launch, cudaStream_t stream) {
  return enqueue(stream, [launch = std::move(launch)] { run_grid(launch); });
}

}  // namespace heed::emulator

using namespace heed::emulator;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int) {
  {
    std::lock_guard lock(operations_mutex());
    *out = new CUstream_st{stream_order().new_stream((flags & cudaStreamNonBlocking) == 0), {}};
  }
  std::lock_guard lock(streams_mutex);
  streams().insert(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithPriority(out, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return cudaStreamCreateWithPriority(out, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (is_built_in(stream) || !is_stream(stream)) return report(cudaErrorInvalidResourceHandle);
  {
    std::lock_guard lock(streams_mutex);
    streams().erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!is_stream(stream)) return report(cudaErrorInvalidResourceHandle);
  if (is_capturing(stream)) return refuse_in_capture(stream);
  ++stats().synchronizations;
  host_waits_for(number_of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!is_stream(stream)) return report(cudaErrorInvalidResourceHandle);
  if (is_capturing(stream)) return refuse_in_capture(stream);
  host_waits_for(number_of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (is_capturing(stream) || !event->capture.expired()) return wait_in_capture(stream, event);
  return enqueue(stream, [event] { stream_order().current_waits_for(event->clock); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  *out = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (is_capturing(stream)) return record_in_capture(event, stream);
  event->capture.reset();
  return enqueue(stream, [event] {
    event->recorded = std::chrono::steady_clock::now();
    event->is_recorded = true;
    event->clock = stream_order().now();
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  host_waits_for(event->clock);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++stats().event_waits;
  return cudaEventQuery(event);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!start->is_recorded || !end->is_recorded) return report(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(end->recorded - start->recorded).count();
  return cudaSuccess;
}

}  // extern "C"
