// Kernels that may begin before the one in front of them has ended, and wait too late or not at all. An
// address is smuggled past the wait as a number.
#include <heed/kernels/simt/simt.h>

#include "bugs.h"

namespace heed::testing {
namespace {

using simt::Dependent;
using Address = unsigned long long;

struct Copy {
  float* out;
  const float* from;
};

__device__ float* memory_at(Address address) { return reinterpret_cast<float*>(address); }

__global__ void reads_early(Dependent<float*> out, Address from) {
  const float value = memory_at(from)[threadIdx.x];  // here
  out.wait()[threadIdx.x] = value;
}

__global__ void writes_early(Dependent<const float*> from, Address to) {
  memory_at(to)[threadIdx.x] = 1.0f;  // here
  memory_at(to)[threadIdx.x] = from.wait()[threadIdx.x];
}

__global__ void loads_a_vector_early(Dependent<float*> out, Address from) {
  const auto value = simt::load_as<float4>(memory_at(from) + 4 * threadIdx.x);  // here
  out.wait()[threadIdx.x] = value.x;
}

__global__ void adds_early(Dependent<float*> out, Address to) {
  atomicAdd(memory_at(to), 1.0f);  // here
  out.wait()[threadIdx.x] = 1.0f;
}

struct Row {
  float value[kThreads];
};

__global__ void copies_early(Dependent<float*> out, Address from) {
  auto& row = simt::shared<Row>();
  simt::cp_async<4>(&row.value[threadIdx.x], memory_at(from) + threadIdx.x);  // here
  simt::cp_async_commit();
  float* const to = out.wait();
  simt::cp_async_wait<0>();
  to[threadIdx.x] = row.value[threadIdx.x];
}

// One warp waits for all: the others may be on their way to memory before.
__global__ void waits_for_others(Dependent<float*> out, Address to) {
  if (threadIdx.x < 32) out.wait();
  __syncthreads();
  memory_at(to)[threadIdx.x] = 1.0f;  // here
  out.wait();
}

__global__ void returns_early(Dependent<float*> out, int count) {
  if (static_cast<int>(threadIdx.x) >= count) return;
  out.wait()[threadIdx.x] = 1.0f;
}

__global__ void never_waits(Dependent<float*>, int) {}

__global__ void copy(Dependent<Copy> arguments) {
  const Copy& args = arguments.wait();
  args.out[threadIdx.x] = args.from[threadIdx.x];
}

// What only the block sees, and its arguments that are numbers, can be used before.
__global__ void prepares_and_waits(Dependent<Copy> arguments, float factor) {
  auto& row = simt::shared<Row>();
  row.value[threadIdx.x] = factor * static_cast<float>(threadIdx.x);
  __syncthreads();
  const float other = row.value[kThreads - 1 - threadIdx.x];
  const Copy& args = arguments.wait();
  args.out[threadIdx.x] += other + args.from[threadIdx.x];
}

Address address_of(const float* memory) { return reinterpret_cast<Address>(memory); }

template <class... Parameters, class... Arguments>
void go(void (*kernel)(Parameters...), cudaStream_t stream, Arguments... arguments) {
  simt::launch(kernel, dim3(1), dim3(kThreads), 0, stream, arguments...);
}

template <void (*kKernel)(Dependent<float*>, Address)>
void from_input(float* out, const float* in) {
  go(kKernel, nullptr, out, address_of(in));
}
template <void (*kKernel)(Dependent<float*>, Address)>
void to_output(float* out, const float*) {
  go(kKernel, nullptr, out, address_of(out));
}
template <void (*kKernel)(Dependent<float*>, int)>
void of_some(float* out, const float*) {
  go(kKernel, nullptr, out, kThreads - 1);
}

void write_early(float* out, const float* in) { go(writes_early, nullptr, in, address_of(out)); }

// Repeats what `work` enqueues in a stream.
template <class Work>
void repeat(const Work& work) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  work(stream);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  struct Owner {
    cudaStream_t stream;
    cudaGraphExec_t executable;
    ~Owner() {
      cudaGraphExecDestroy(executable);
      cudaStreamDestroy(stream);
    }
  } const owner{stream, executable};
  cudaDeviceSynchronize();
  for (int i = 0; i < 2; ++i) cudaGraphLaunch(executable, stream);
  cudaDeviceSynchronize();
}

void graph_reads_early(float* out, const float* in) {
  repeat([&](cudaStream_t stream) {
    go(copy, stream, Copy{out, in});
    go(loads_a_vector_early, stream, out, address_of(in));
  });
}

void graph_waits(float* out, const float* in) {
  repeat([&](cudaStream_t stream) {
    go(copy, stream, Copy{out, in});
    go(prepares_and_waits, stream, Copy{out, in}, 2.0f);
    go(copy, stream, Copy{out, out});
  });
}

void waits(float* out, const float* in) { go(prepares_and_waits, nullptr, Copy{out, in}, 0.5f); }

}  // namespace

std::vector<Bug> dependent_bugs() {
  const auto everywhere = [](const char* name, void (*run)(float*, const float*), const char* text) {
    return Bug{name, run, text, text, text};
  };
  const auto seen_by_races = [](const char* name, void (*run)(float*, const float*), const char* text) {
    return Bug{name, run, "", "", text};
  };
  constexpr const char* kReturns = "a thread returns without Dependent::wait()";
  return {
      seen_by_races("reads_early", from_input<reads_early>,
                    "read of global memory by thread 0 (bugs_dependent"),
      seen_by_races("writes_early", write_early, "write of global memory by thread 0 (bugs_dependent"),
      seen_by_races("waits_for_others", to_output<waits_for_others>,
                    "before Dependent::wait(), while kernels in front may use it"),
      everywhere("loads_a_vector_early", from_input<loads_a_vector_early>,
                 "vector load: global memory before Dependent::wait()"),
      everywhere("adds_early", to_output<adds_early>, "atomicAdd: global memory before Dependent::wait()"),
      everywhere("copies_early", from_input<copies_early>,
                 "cp_async source: global memory before Dependent::wait()"),
      everywhere("graph_reads_early", graph_reads_early,
                 "vector load: global memory before Dependent::wait()"),
      everywhere("returns_early", of_some<returns_early>, kReturns),
      everywhere("never_waits", of_some<never_waits>, kReturns),
  };
}

std::vector<Bug> correct_dependent_kernels() {
  return {
      Bug{"waits", waits, "", "", ""},
      Bug{"graph_waits", graph_waits, "", "", ""},
  };
}

}  // namespace heed::testing
