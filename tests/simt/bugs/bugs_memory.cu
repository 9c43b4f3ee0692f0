// Mistakes with memory and launches, and correct uses of both.
#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/simt.h>

#include "bugs.h"

namespace heed::testing {
namespace {

struct Row {
  float value[kThreads];
};

template <class... Parameters, class... Arguments>
void go(void (*kernel)(Parameters...), int blocks, size_t shared_bytes, Arguments... arguments) {
  simt::launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), shared_bytes, nullptr,
               arguments...);
}

__global__ void write_past_end(float* out) { out[threadIdx.x + 1] = 1.0f; }                        // here
__global__ void write_before_start(float* out) { out[static_cast<int>(threadIdx.x) - 1] = 1.0f; }  // here
__global__ void read_past_end(float* out, const float* in) {
  out[threadIdx.x] = in[2048 - kThreads + 1 + threadIdx.x];  // here
}
__global__ void no_guard_for_the_tail(float* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;  // here
}

__global__ void shared_overrun(float* out) {
  auto& row = simt::shared<Row>();
  volatile float* value = row.value;
  value[threadIdx.x + 1] = 1.0f;  // here
  __syncthreads();
  out[threadIdx.x] = 1.0f;
}

__global__ void piece_overrun(float* out) {  // the first piece runs into the second
  simt::Arena<> arena;
  float* a = arena.take<float>(kThreads);
  float* b = arena.take<float>(kThreads);
  b[threadIdx.x] = 2.0f;
  __syncthreads();
  a[threadIdx.x + 1] = 1.0f;  // here
  __syncthreads();
  out[threadIdx.x] = b[threadIdx.x];
}

__global__ void more_than_launched(float* out) {
  simt::Arena<> arena;
  float* a = arena.take<float>(512);  // here
  a[threadIdx.x] = 1.0f;
  out[threadIdx.x] = a[threadIdx.x];
}

__global__ void static_overrun(float* out) {
  __shared__ float values[kThreads];
  volatile float* value = values;
  value[threadIdx.x + 1] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = 1.0f;
}

__global__ void uninitialised_shared(float* out) {
  auto& row = simt::shared<Row>();  // here
  if (threadIdx.x < kThreads - 1) row.value[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = row.value[threadIdx.x];  // here
}

__global__ void copy_element(float* out, const float* from) { out[threadIdx.x] = from[threadIdx.x]; }  // here
__global__ void all_but_one_element(float* out) {
  if (threadIdx.x != 7) out[threadIdx.x] = 1.0f;
}

struct alignas(16) Vectors {
  float4 value[kThreads];
};
__global__ void vector_store_to_shared(float* out) {
  auto& vectors = simt::shared<Vectors>();
  simt::store_as(&vectors.value[threadIdx.x], float4{1.0f, 1.0f, 1.0f, 1.0f});  // here
  __syncthreads();
  out[threadIdx.x] = vectors.value[threadIdx.x].x;
}

__global__ void misaligned_vector(float* out, const float* in) {
  out[threadIdx.x] = simt::load_as<float4>(in + 1 + threadIdx.x).x;  // here
}
__global__ void misaligned_cast(float* out, const float* in) {
  const volatile double* pair = reinterpret_cast<const volatile double*>(in + 1 + 2 * (threadIdx.x / 64));
  out[threadIdx.x] = *pair > 0.0 ? 1.0f : 0.0f;  // here
}
__global__ void misaligned_ldg(float* out, const float* in) {
  out[threadIdx.x] = __ldg(reinterpret_cast<const float4*>(in + 2)).x;  // here
}

struct Pointers {
  float* out;
  const float* in;
};
__global__ void copy_through_struct(Pointers p) { p.out[threadIdx.x] = p.in[threadIdx.x]; }  // here

__global__ void blocks_add_without_atomics(float* out) { out[threadIdx.x] += 1.0f; }  // here
__global__ void atomic_beside_plain(float* out) {
  if (threadIdx.x < 64)
    atomicAdd(out, 1.0f);  // here
  else if (threadIdx.x == 64)
    *out = 5.0f;  // here
}

__global__ void overflowing_index(float* out, const float* in, int stride) {
  const int index = stride * static_cast<int>(threadIdx.x + 1);
  out[threadIdx.x] = in[index & 1023];
}

__global__ void add_atomically(float* out) { atomicAdd(out + threadIdx.x, 1.0f); }

// The last block to finish adds what the others left; leaves everything as it found it.
enum class Ticket { right, no_fence, no_barrier };

template <Ticket kTicket>
__global__ void last_block_adds(float* out, float* partials, unsigned* counter) {
  auto& is_last = simt::shared<bool>();
  if (threadIdx.x == 64) {
    partials[blockIdx.x] = 1.0f + static_cast<float>(blockIdx.x);  // here
    if (kTicket != Ticket::no_fence) __threadfence();
  }
  if (kTicket != Ticket::no_barrier) __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(counter, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last || threadIdx.x != 3) return;
  for (unsigned i = 0; i < gridDim.x; ++i) out[0] += partials[i];  // here
  *counter = 0;
}

template <Ticket kTicket>
void run_last_block_adds(float* out, const float*) {
  float* partials = nullptr;
  unsigned* counter = nullptr;
  cudaMalloc(&partials, 5 * sizeof(float));
  cudaMalloc(&counter, sizeof(unsigned));
  cudaMemset(counter, 0, sizeof(unsigned));
  go(last_block_adds<kTicket>, 5, 0, out, partials, counter);
  cudaFree(partials);
  cudaFree(counter);
}

__global__ void histogram(float* out, const float* in) {
  auto& bins = simt::shared<Row>();
  bins.value[threadIdx.x] = 0.0f;
  __syncthreads();
  for (int i = threadIdx.x; i < 2048; i += kThreads)
    atomicAdd(&bins.value[static_cast<int>(in[i]) % 16], 1.0f);
  __syncthreads();
  out[threadIdx.x] = bins.value[threadIdx.x];
}

void shape(dim3 grid, dim3 block, size_t shared_bytes, float* out) {
  simt::launch(all_but_one_element, grid, block, shared_bytes, nullptr, out);
}

}  // namespace

std::vector<Bug> memory_bugs() {
  constexpr const char* kVector =
      "vector load: misaligned address, 4 bytes past a multiple of 16 at bugs_memory.cu:";
  constexpr const char* kLdg = "__ldg: misaligned address, 8 bytes past a multiple of 16";
  constexpr const char* kOverflow = "crash: heap-buffer-overflow(.|\n)*bugs_memory.cu";
  constexpr const char* kPoisoned = "crash: use-after-poison(.|\n)*bugs_memory.cu";
  constexpr const char* kGlobal = "out-of-bounds global memory ";
  constexpr const char* kUninitialised = "read of uninitialised ";
  return {
      {"write_past_end", [](float* o, const float*) { go(write_past_end, 1, 0, o); },
       "out-of-bounds global memory write past the end of an allocation of 512 bytes", kOverflow, kGlobal},
      {"write_before_start", [](float* o, const float*) { go(write_before_start, 1, 0, o); },
       "out-of-bounds global memory write before the start of an allocation of 512 bytes", kOverflow,
       kGlobal},
      {"read_past_end", [](float* o, const float* i) { go(read_past_end, 1, 0, o, i); }, "", kOverflow,
       "out-of-bounds global memory read of 4 bytes by thread"},
      {"no_guard_for_the_tail", [](float* o, const float*) { go(no_guard_for_the_tail, 2, 0, o); },
       "out-of-bounds global memory write", kOverflow, kGlobal},
      {"shared_overrun", [](float* o, const float*) { go(shared_overrun, 1, 0, o); },
       "out-of-bounds shared memory write: block (0,0,0)", kPoisoned,
       "out-of-bounds shared memory write of 4 bytes"},
      {"piece_overrun", [](float* o, const float*) { go(piece_overrun, 1, 1024, o); },
       "out-of-bounds shared memory write", kPoisoned, "out-of-bounds shared memory write"},
      {"more_than_launched", [](float* o, const float*) { go(more_than_launched, 1, 1024, o); },
       "the kernel takes 2048 bytes, the launch provides 1024", "the launch provides 1024",
       "the launch provides 1024"},
      {"static_overrun", [](float* o, const float*) { go(static_overrun, 1, 0, o); }, "",
       "crash: global-buffer-overflow", ""},
      {"uninitialised_shared", [](float* o, const float*) { go(uninitialised_shared, 1, 0, o); }, "nan",
       "nan", "read of uninitialised shared memory"},
      {"uninitialised_global",
       [](float* o, const float*) {
         float* fresh = nullptr;
         cudaMalloc(&fresh, 512);
         go(copy_element, 1, 0, o, fresh);
         cudaFree(fresh);
       },
       "nan", "nan", kUninitialised},
      {"poisoned_global",
       [](float* o, const float*) {
         float* used = nullptr;
         cudaMalloc(&used, 512);
         cudaMemset(used, 0, 512);
         simt::poison(used, 512, nullptr);
         go(copy_element, 1, 0, o, used);
         cudaFree(used);
       },
       "nan", "nan", kUninitialised},
      {"element_not_written",
       [](float* o, const float*) {
         float* fresh = nullptr;
         cudaMalloc(&fresh, 512);
         go(all_but_one_element, 1, 0, fresh);
         cudaMemcpy(o, fresh, 512, cudaMemcpyDeviceToDevice);
         cudaFree(fresh);
       },
       "nan", "nan", "nan"},
      {"misaligned_vector", [](float* o, const float* i) { go(misaligned_vector, 1, 0, o, i); }, kVector,
       kVector, kVector},
      {"vector_store_to_shared", [](float* o, const float*) { go(vector_store_to_shared, 1, 0, o); },
       "vector store: the address is in shared memory", "vector store: the address is in shared memory",
       "vector store: the address is in shared memory"},
      {"misaligned_cast", [](float* o, const float* i) { go(misaligned_cast, 1, 0, o, i); }, "",
       "crash: misaligned address", "misaligned access: the address is 4 bytes past a multiple of 8"},
      {"misaligned_ldg", [](float* o, const float* i) { go(misaligned_ldg, 1, 0, o, i); }, kLdg, kLdg, kLdg},
      {"host_pointer",
       [](float* o, const float*) {
         const float host[kThreads] = {};
         go(copy_element, 1, 0, o, static_cast<const float*>(host));
       },
       "argument 2 of the kernel is a pointer to host memory", "argument 2 of the kernel",
       "argument 2 of the kernel"},
      {"host_pointer_in_a_struct",
       [](float* o, const float*) {
         const float host[kThreads] = {};
         go(copy_through_struct, 1, 0, Pointers{o, host});
       },
       "", "", "read of host memory by thread"},
      {"freed_memory",
       [](float* o, const float*) {
         float* freed = nullptr;
         cudaMalloc(&freed, 1 << 20);
         cudaFree(freed);
         go(copy_through_struct, 1, 0, Pointers{o, freed + (1 << 17)});
       },
       nullptr, "crash: heap-use-after-free", "read of host memory by thread"},
      {"blocks_add_without_atomics", [](float* o, const float*) { go(blocks_add_without_atomics, 2, 0, o); },
       "", "", "data race between blocks on global memory"},
      {"atomic_beside_plain", [](float* o, const float*) { go(atomic_beside_plain, 1, 0, o); }, "differs",
       "differs", "data race on global memory"},
      {"no_fence_before_ticket", run_last_block_adds<Ticket::no_fence>, "", "", "data race between blocks"},
      {"no_barrier_before_ticket", run_last_block_adds<Ticket::no_barrier>, "", "",
       "data race between blocks"},
      {"state_left_by_the_last_launch",
       [](float* o, const float*) {
         static float* const total = [] {
           float* t = nullptr;
           cudaMalloc(&t, 512);
           cudaMemset(t, 0, 512);
           return t;
         }();
         go(add_atomically, 1, 0, total);
         go(copy_element, 1, 0, o, total);
       },
       "differs", "differs", "differs"},
      {"overflowing_index", [](float* o, const float* i) { go(overflowing_index, 1, 0, o, i, 1 << 30); }, "",
       "crash: signed integer overflow", ""},
  };
}

std::vector<Bug> launch_bugs() {
  constexpr const char* kConfiguration = "invalid launch configuration: ";
  const auto everywhere = [](const char* name, void (*run)(float*, const float*), const char* text) {
    return Bug{name, run, text, text, text};
  };
  return {
      everywhere(
          "no_blocks", [](float* o, const float*) { shape(0, 32, 0, o); },
          "invalid launch configuration: grid (0,1,1)"),
      everywhere(
          "no_threads", [](float* o, const float*) { shape(1, 0, 0, o); }, kConfiguration),
      everywhere(
          "threads_1025", [](float* o, const float*) { shape(1, 1025, 0, o); }, "block (1025,1,1)"),
      everywhere(
          "threads_2048_in_two", [](float* o, const float*) { shape(1, dim3(64, 32), 0, o); },
          "block (64,32,1)"),
      everywhere(
          "block_z_65", [](float* o, const float*) { shape(1, dim3(1, 1, 65), 0, o); }, kConfiguration),
      everywhere(
          "grid_y_65536", [](float* o, const float*) { shape(dim3(1, 65536), 32, 0, o); },
          "grid (1,65536,1)"),
      everywhere(
          "grid_z_65536", [](float* o, const float*) { shape(dim3(1, 1, 65536), 32, 0, o); },
          "grid (1,1,65536)"),
      everywhere(
          "shared_over_the_limit", [](float* o, const float*) { shape(1, 32, 164 * 1024, o); },
          "167936 bytes of dynamic shared memory, the limit is 166912"),
      everywhere(
          "static_and_dynamic_shared_over_the_limit",
          [](float* o, const float*) { go(uninitialised_shared, 1, 163 * 1024, o); },
          "too much shared memory: 512 bytes static and 166912 dynamic, the limit is 166912"),
      everywhere(
          "device_function_on_the_host", [](float*, const float*) { __syncthreads(); },  // here
          "device function called outside a kernel at bugs_memory.cu:"),
  };
}

std::vector<Bug> correct_memory_kernels() {
  return {
      {"add_atomically", [](float* o, const float*) { go(add_atomically, 3, 0, o); }, "", "", ""},
      {"last_block_adds", run_last_block_adds<Ticket::right>, "", "", ""},
      {"histogram", [](float* o, const float* i) { go(histogram, 1, 0, o, i); }, "", "", ""},
      {"copy_through_struct",
       [](float* o, const float* i) {
         go(copy_through_struct, 1, 0, Pointers{o, i});
       },
       "", "", ""},
  };
}

}  // namespace heed::testing
