#include <heed/kernels/capture.h>
#include <heed/kernels/cuda/runtime/device_state.cuh>
#include <heed/kernels/runtime.h>

namespace heed::cuda {
namespace {

// While one lives, this thread may call what a capture forbids, such as cudaMalloc: it concerns no stream.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Ordinary memory, not the stream's: a graph's own allocations would be freed between its launches.
MemorySource arena_source(DeviceState& device) {
  return {
      .name = device.name.c_str(),
      .acquire = [](size_t bytes) -> void* {
        const RelaxedCapture relaxed;
        void* pointer = nullptr;
        const cudaError_t error = cudaMalloc(&pointer, bytes);
        if (error == cudaErrorMemoryAllocation) {
          static_cast<void>(cudaGetLastError());
          return nullptr;
        }
        check(error, "cudaMalloc");
        return pointer;
      },
      .release =
          [](void* pointer, size_t) {
            const RelaxedCapture relaxed;
            cudaFree(pointer);
          },
      .poison = [&device](void* pointer,
                          size_t bytes) { check(simt::poison(pointer, bytes, device.stream()), "poison"); }};
}

// Gives what is kept for reuse back to the device, so that an arena can have it.
void release_unused(DeviceState& device, cudaStream_t stream) {
  device.allocator.release_cached();
  check(cudaStreamSynchronize(stream), "capture");
  cudaMemPool_t pool;
  check(cudaDeviceGetDefaultMemPool(&pool, device.index), "cudaDeviceGetDefaultMemPool");
  check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
}

// A capture of the device's stream; ended by finish(), or thrown away where that was not reached.
class Capture {
 public:
  Capture(DeviceState& device, std::shared_ptr<Allocator> arena)
      : device_(device), stream_(device.stream_outside_capture("capture")) {
    release_unused(device, stream_);
    state_.thread = std::this_thread::get_id();
    state_.arena = std::move(arena);
    device.begin_capture(state_);
    const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) return;
    device.end_capture();
    check(error, "cudaStreamBeginCapture");
  }
  ~Capture() {
    if (finished_) return;
    cudaGraph_t graph = nullptr;
    static_cast<void>(cudaStreamEndCapture(stream_, &graph));
    if (graph != nullptr) cudaGraphDestroy(graph);
    static_cast<void>(cudaGetLastError());
    device_.end_capture();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t finish() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    finished_ = true;
    device_.end_capture();
    check(error, "cudaStreamEndCapture");
    return graph;
  }

  /// Of a finished one: whether its graph may keep a wrong index that it does not report.
  bool checks_indices() const { return state_.checks_indices; }

 private:
  DeviceState& device_;
  cudaStream_t stream_;
  CaptureState state_;
  bool finished_ = false;
};

}  // namespace

std::shared_ptr<Allocator> make_arena(int index) {
  return std::make_shared<Allocator>(arena_source(device_state(index)), AllocatorKind::arena);
}

std::shared_ptr<Allocator> capture_memory(int index) {
  const CaptureState* const capture = device_state(index).own_capture();
  return capture != nullptr ? capture->arena : nullptr;
}

struct Graph::State {
  DeviceState& device;
  std::shared_ptr<Allocator> arena;
  cudaGraphExec_t executable = nullptr;
  size_t nodes = 0;
  bool checks_indices = false;  // and does not report them itself
};

Graph::Graph(int index, std::shared_ptr<Allocator> arena, const std::function<void()>& work)
    : state_(new State{device_state(index), std::move(arena)}) {
  set_device(index);
  Capture capture(state_->device, state_->arena);
  work();
  cudaGraph_t graph = capture.finish();
  state_->checks_indices = capture.checks_indices();
  static_cast<void>(cudaGraphGetNodes(graph, nullptr, &state_->nodes));
  const cudaError_t error = cudaGraphInstantiate(&state_->executable, graph, 0);
  cudaGraphDestroy(graph);
  check(error, "cudaGraphInstantiate");
}

// Where the device is still at it, the graph goes after that, and so does the arena: cudaFree waits.
Graph::~Graph() { cudaGraphExecDestroy(state_->executable); }

int64_t Graph::nodes() const { return static_cast<int64_t>(state_->nodes); }

void Graph::launch() const {
  if (state_->checks_indices) state_->device.expect_wrong_index();
  check(cudaGraphLaunch(state_->executable, state_->device.stream()), "cudaGraphLaunch");
}

void on_side(int index, const std::function<void()>& work) {
  DeviceState& device = device_state(index);
  CaptureState* const capture = device.own_capture();
  if (capture == nullptr) return work();
  struct OnSide {
    bool& flag;
    ~OnSide() { flag = false; }
  };
  device.fork_side();
  capture->has_side = true;
  const OnSide side{capture->on_side = true};
  work();
}

void join_side(int index) {
  DeviceState& device = device_state(index);
  CaptureState* const capture = device.own_capture();
  if (capture == nullptr || !capture->has_side) return;
  device.join_side();
  capture->has_side = false;
}

PinnedMemory::PinnedMemory(size_t bytes) : data_(nullptr), bytes_(bytes) {
  void* pointer = nullptr;
  check(cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "PinnedMemory");
  data_ = static_cast<std::byte*>(pointer);
}
PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

void upload(int index, void* device, const void* pinned, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, device_state(index).stream()),
        "upload");
}

void download(int index, void* pinned, const void* device, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, device_state(index).stream()),
        "download");
}

struct Event::State {
  DeviceState& device;
  cudaEvent_t event;
};

Event::Event(int index) : state_(new State{device_state(index), nullptr}) {
  set_device(index);
  check(cudaEventCreateWithFlags(&state_->event, cudaEventDisableTiming), "cudaEventCreate");
}
Event::~Event() { cudaEventDestroy(state_->event); }

void Event::record() { check(cudaEventRecord(state_->event, state_->device.stream()), "cudaEventRecord"); }

void Event::wait() const {
  static_cast<void>(state_->device.stream_outside_capture("Event::wait"));
  check(cudaEventSynchronize(state_->event), "cudaEventSynchronize");
}

}  // namespace heed::cuda
