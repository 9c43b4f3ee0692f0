// Work in two streams of which nothing says that one waits for the other, and streams that do wait.
#include <heed/kernels/simt/simt.h>

#include "bugs.h"

namespace heed::testing {
namespace {

__global__ void add_one(float* out) { out[threadIdx.x] += 1.0f; }                              // here
__global__ void copy(float* out, const float* from) { out[threadIdx.x] = from[threadIdx.x]; }  // here
__global__ void add_atomically(float* out) { atomicAdd(out, 1.0f); }

void run_add(float* out, cudaStream_t stream) {
  simt::launch(add_one, dim3(1), dim3(kThreads), 0, stream, out);
}
void run_copy(float* out, const float* from, cudaStream_t stream) {
  simt::launch(copy, dim3(1), dim3(kThreads), 0, stream, out, from);
}

constexpr size_t kBytes = kThreads * sizeof(float);

// Two streams that wait for no other, as heed's do, an event, and memory beside `out`.
struct Streams {
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  float *one = nullptr, *two = nullptr;

  explicit Streams(unsigned flags = cudaStreamNonBlocking) {
    cudaStreamCreateWithFlags(&a, flags);
    cudaStreamCreateWithFlags(&b, flags);
    cudaEventCreate(&event);
    cudaMalloc(reinterpret_cast<void**>(&one), kBytes);
    cudaMalloc(reinterpret_cast<void**>(&two), kBytes);
    cudaMemset(one, 0, kBytes);
    cudaMemset(two, 0, kBytes);
    cudaDeviceSynchronize();
  }
  ~Streams() {
    cudaFree(one);
    cudaFree(two);
    cudaEventDestroy(event);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  void let_b_wait() const {
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event, 0);
  }
};

// The first writes, the second writes.
void two_writes(float* out, const float*) {
  const Streams s;
  run_add(out, s.a);
  run_add(out, s.b);
}

void reads_what_is_still_written(float* out, const float*) {
  const Streams s;
  run_add(s.one, s.a);
  run_copy(out, s.one, s.b);
}

void writes_what_is_still_read(float* out, const float* in) {
  const Streams s;
  run_copy(out, s.one, s.a);
  run_copy(s.one, in, s.b);
}

void default_stream_waits_for_no_such(float* out, const float*) {
  const Streams s;
  run_add(out, s.a);
  run_add(out, nullptr);
}

void copy_of_what_is_still_written(float* out, const float*) {
  const Streams s;
  run_add(s.one, s.a);
  cudaMemcpyAsync(out, s.one, kBytes, cudaMemcpyDeviceToDevice, s.b);
}

void fill_of_what_is_still_written(float* out, const float*) {
  const Streams s;
  run_add(out, s.a);
  cudaMemsetAsync(out, 0, kBytes, s.b);
}

void written_while_it_is_filled(float* out, const float*) {
  const Streams s;
  cudaMemsetAsync(out, 0, kBytes, s.a);
  run_add(out, s.b);
}

void upload_still_under_way(float* out, const float*) {
  const Streams s;
  const float host[kThreads] = {};
  cudaMemcpy(s.one, host, kBytes, cudaMemcpyHostToDevice);
  run_copy(out, s.one, s.a);
}

void event_recorded_too_early(float* out, const float*) {
  const Streams s;
  s.let_b_wait();
  run_add(out, s.a);
  run_add(out, s.b);
}

void host_waits_for_another_stream(float* out, const float*) {
  const Streams s;
  run_add(out, s.a);
  cudaStreamSynchronize(s.b);
  run_add(out, s.b);
}

void waits_for_one_of_two_readers(float* out, const float* in) {
  const Streams s, other;
  run_copy(s.two, s.one, other.a);
  run_copy(out, s.one, s.a);
  s.let_b_wait();
  run_copy(s.one, in, s.b);
}

struct Executable {
  cudaGraphExec_t graph = nullptr;
  ~Executable() {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
};

void graph_in_another_stream(float* out, const float*) {
  const Streams s;
  Executable executable;
  cudaGraph_t graph;
  cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal);
  run_add(out, s.a);
  cudaStreamEndCapture(s.a, &graph);
  cudaGraphInstantiate(&executable.graph, graph, 0);
  cudaGraphDestroy(graph);
  run_add(out, s.a);
  cudaGraphLaunch(executable.graph, s.b);
}

// A captured step in two streams: the second writes `one` beside what the first does.
template <class Beside, class After>
void run_forked(const Streams& s, const Beside& beside, const After& after) {
  Executable executable;
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal);
  run_add(s.one, s.a);
  s.let_b_wait();
  run_add(s.one, s.b);
  beside();
  cudaEventRecord(s.event, s.b);
  cudaStreamWaitEvent(s.a, s.event, 0);
  after();
  cudaStreamEndCapture(s.a, &graph);
  cudaGraphInstantiate(&executable.graph, graph, 0);
  cudaGraphDestroy(graph);
  for (int i = 0; i < 2; ++i) cudaGraphLaunch(executable.graph, s.a);
  cudaDeviceSynchronize();
}

void graph_reads_before_it_joins(float* out, const float*) {
  const Streams s;
  run_forked(
      s, [&] { run_copy(out, s.one, s.a); }, [] {});
}

void graph_forks_and_joins(float* out, const float* in) {
  const Streams s;
  run_forked(
      s, [&] { run_copy(s.two, in, s.a); }, [&] { run_copy(out, s.one, s.a); });
}

void event_between(float* out, const float*) {
  const Streams s;
  run_add(out, s.a);
  s.let_b_wait();
  run_add(out, s.b);
}

void event_through_a_third_stream(float* out, const float*) {
  const Streams s, other;
  run_add(out, s.a);
  s.let_b_wait();
  cudaEventRecord(other.event, s.b);
  cudaStreamWaitEvent(other.a, other.event, 0);
  run_add(out, other.a);
}

void host_waits_between(float* out, const float*) {
  const Streams s;
  run_add(out, s.a);
  cudaStreamSynchronize(s.a);
  run_add(out, s.b);
  cudaEventRecord(s.event, s.b);
  cudaEventSynchronize(s.event);
  run_add(out, s.a);
  cudaDeviceSynchronize();
  run_add(out, s.b);
}

void blocking_streams_and_the_default_one(float* out, const float*) {
  const Streams s(cudaStreamDefault);
  run_add(out, s.a);
  run_add(out, nullptr);
  run_add(out, s.b);
}

void two_readers(float* out, const float*) {
  const Streams s;
  run_copy(out, s.one, s.a);
  run_copy(s.two, s.one, s.b);
}

void atomics_of_two_streams(float* out, const float*) {
  const Streams s;
  for (const cudaStream_t stream : {s.a, s.b})
    simt::launch(add_atomically, dim3(2), dim3(kThreads), 0, stream, out);
}

// A copy from pinned memory is over when cudaMemcpy returns.
void upload_from_pinned_memory(float*, const float*) {
  const Streams s;
  void* host = nullptr;
  cudaMallocHost(&host, kBytes);
  cudaMemcpy(s.one, host, kBytes, cudaMemcpyHostToDevice);
  run_add(s.one, s.a);
  cudaFreeHost(host);
}

}  // namespace

std::vector<Bug> stream_bugs() {
  const auto races = [](const char* name, void (*run)(float*, const float*), const char* text) {
    return Bug{name, run, "", "", text};
  };
  constexpr const char* kOfAKernel = "unordered with the write by the kernel launched at bugs_streams.cu:";
  return {
      races("two_writes", two_writes, kOfAKernel),
      races(
          "reads_what_is_still_written", reads_what_is_still_written,
          "race between streams on global memory at byte 0 of an allocation of 512 bytes: read by thread 0"),
      races("writes_what_is_still_read", writes_what_is_still_read,
            "unordered with the read by the kernel launched at bugs_streams.cu:"),
      races("default_stream_waits_for_no_such", default_stream_waits_for_no_such, kOfAKernel),
      races("copy_of_what_is_still_written", copy_of_what_is_still_written,
            ": read by a copy, fill or product, unordered with the write by the kernel launched at "),
      races("fill_of_what_is_still_written", fill_of_what_is_still_written,
            ": write by a copy, fill or product, unordered with the write by the kernel launched at "),
      races("written_while_it_is_filled", written_while_it_is_filled,
            "unordered with the write by a copy, fill or product in another stream"),
      races("upload_still_under_way", upload_still_under_way,
            "unordered with the write by a copy, fill or product in another stream"),
      races("event_recorded_too_early", event_recorded_too_early, kOfAKernel),
      races("host_waits_for_another_stream", host_waits_for_another_stream, kOfAKernel),
      races("waits_for_one_of_two_readers", waits_for_one_of_two_readers,
            "unordered with the read by the kernel launched at bugs_streams.cu:"),
      races("graph_in_another_stream", graph_in_another_stream, kOfAKernel),
      races("graph_reads_before_it_joins", graph_reads_before_it_joins, kOfAKernel),
  };
}

std::vector<Bug> correct_streams() {
  const auto fine = [](const char* name, void (*run)(float*, const float*)) {
    return Bug{name, run, "", "", ""};
  };
  return {
      fine("event_between", event_between),
      fine("graph_forks_and_joins", graph_forks_and_joins),
      fine("event_through_a_third_stream", event_through_a_third_stream),
      fine("host_waits_between", host_waits_between),
      fine("blocking_streams_and_the_default_one", blocking_streams_and_the_default_one),
      fine("two_readers", two_readers),
      fine("atomics_of_two_streams", atomics_of_two_streams),
      fine("upload_from_pinned_memory", upload_from_pinned_memory),
  };
}

}  // namespace heed::testing
