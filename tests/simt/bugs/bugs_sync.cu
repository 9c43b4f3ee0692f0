// Mistakes in barriers and warp collectives, and correct uses of both.
#include <heed/kernels/simt/simt.h>

#include "bugs.h"

namespace heed::testing {
namespace {

struct Row {
  float value[kThreads];
};

template <class... Parameters, class... Arguments>
void go(void (*kernel)(Parameters...), int blocks, Arguments... arguments) {
  simt::launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, nullptr, arguments...);
}

__global__ void no_barrier_before_read(float* out) {
  auto& row = simt::shared<Row>();
  const int t = threadIdx.x;
  row.value[t] = static_cast<float>(t);
  out[t] = row.value[(t + 32) % kThreads];  // here
}

__global__ void no_barrier_before_rewrite(float* out) {
  auto& row = simt::shared<Row>();
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 3; ++i) {
    row.value[t] = static_cast<float>(t + i);  // here
    __syncthreads();
    sum += row.value[kThreads - 1 - t];  // here
  }
  out[t] = sum;
}

__global__ void all_threads_write_one_place(float* out) {
  auto& row = simt::shared<Row>();
  row.value[0] = static_cast<float>(threadIdx.x);  // here
  __syncthreads();
  out[threadIdx.x] = row.value[0];
}

__global__ void divergent_barrier(float* out) {
  if (threadIdx.x < 64)
    __syncthreads();  // here
  else
    __syncthreads();  // here
  out[threadIdx.x] = 1.0f;
}

__global__ void barrier_after_some_returned(float* out) {
  if (threadIdx.x >= 64) return;
  __syncthreads();  // here
  out[threadIdx.x] = 1.0f;
}

__global__ void named_barrier_short_of_threads(float* out) {
  if (threadIdx.x < 96) simt::barrier_sync(1, 128);  // here
  out[threadIdx.x] = 1.0f;
}

__global__ void named_barrier_of_100_threads(float* out) {
  simt::barrier_sync(1, 100);  // here
  out[threadIdx.x] = 1.0f;
}

__global__ void named_barrier_17(float* out) {
  simt::barrier_sync(17, 128);  // here
  out[threadIdx.x] = 1.0f;
}

__global__ void named_barrier_without_empty_signal(float* out) {  // the producer may overwrite too early
  auto& row = simt::shared<Row>();
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) {
    if (t < 64) {
      row.value[t] = static_cast<float>(t + i);
      simt::barrier_arrive(1, 128);
    } else {
      simt::barrier_sync(1, 128);  // here
      sum += row.value[kThreads - 1 - t];
    }
  }
  out[t] = sum;
}

__global__ void endless_spin(unsigned* flag) {
  while (atomicAdd(flag, 0u) == 0u) simt::spin_pause();  // here
}

__global__ void named_pipeline(float* out) {
  auto& row = simt::shared<Row>();
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) {
    if (t < 64) {
      if (i > 0) simt::barrier_sync(2, 128);
      row.value[t] = static_cast<float>(t + i);
      simt::barrier_arrive(1, 128);
    } else {
      simt::barrier_sync(1, 128);
      sum += row.value[kThreads - 1 - t];
      if (i < 3) simt::barrier_arrive(2, 128);
    }
  }
  out[t] = sum;
}

__global__ void no_syncwarp(float* out) {
  auto& row = simt::shared<Row>();
  const int t = threadIdx.x;
  row.value[t] = static_cast<float>(t);
  out[t] = row.value[t ^ 1];  // here
}

__global__ void no_syncwarp_before_rewrite(float* out) {
  auto& row = simt::shared<Row>();
  const int t = threadIdx.x;
  row.value[t] = static_cast<float>(t);
  __syncthreads();
  const float neighbour = row.value[t ^ 1];  // here
  row.value[t] = neighbour + 1.0f;           // here
  out[t] = row.value[t];
}

__global__ void with_syncwarp(float* out) {
  auto& row = simt::shared<Row>();
  const int t = threadIdx.x;
  row.value[t] = static_cast<float>(t);
  __syncwarp();
  out[t] = row.value[t ^ 1];
}

__global__ void syncwarp_of_the_other_half(float* out) {  // each half orders only itself
  auto& row = simt::shared<Row>();
  const int t = threadIdx.x;
  row.value[t] = static_cast<float>(t);
  __syncwarp(t % 32 < 16 ? 0x0000ffffu : 0xffff0000u);
  out[t] = row.value[t ^ 16];  // here
}

__global__ void divergent_collective(float* out) {
  float v = static_cast<float>(threadIdx.x);
  if (threadIdx.x % 32 < 16)
    v += __shfl_xor_sync(0xffffffffu, v, 1);  // here
  else
    __syncwarp();  // here
  out[threadIdx.x] = v;
}

__global__ void lanes_missing(float* out) {
  float v = static_cast<float>(threadIdx.x);
  if (threadIdx.x % 32 < 16) v += __shfl_xor_sync(0xffffffffu, v, 1);  // here
  __syncthreads();                                                     // here
  out[threadIdx.x] = v;
}

__global__ void shuffle_from_returned_lane(float* out) {
  if (threadIdx.x % 32 >= 16) return;
  const float v = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = v + __shfl_xor_sync(0xffffffffu, v, 16);  // here
}

__global__ void shuffle_outside_mask(float* out) {
  const float v = static_cast<float>(threadIdx.x);
  if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_down_sync(0x0000ffffu, v, 8);  // here
}

__global__ void lane_not_in_its_mask(float* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);  // here
}
__global__ void shuffle_width_of_3(float* out) {
  out[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0, 3);  // here
}

__global__ void order_of_lanes(float* out, unsigned* counter) {
  const unsigned place = atomicAdd(counter, 1u);
  out[place % kThreads] = static_cast<float>(threadIdx.x);
}

__global__ void order_of_blocks(float* out) {
  if (threadIdx.x == 0) atomicExch(reinterpret_cast<unsigned*>(out), blockIdx.x);
}

__global__ void trapped(float* out) {
  if (out != nullptr && threadIdx.x == 5) __trap();  // here
}

__global__ void halves_apart(float* out) {  // different masks under way in one warp
  const float v = static_cast<float>(threadIdx.x);
  const unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  float sum = v;
  for (int offset = 8; offset > 0; offset >>= 1) sum += __shfl_xor_sync(half, sum, offset);
  out[threadIdx.x] = sum;
}

__global__ void votes(float* out) {
  const int lane = threadIdx.x % 32;
  const unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
  int same = 0, different = 1;
  const bool ok =
      __match_all_sync(0xffffffffu, 5.0f, &same) == 0xffffffffu && same == 1 &&
      __match_all_sync(0xffffffffu, lane / 31, &different) == 0u && different == 0 && odd == 0xaaaaaaaau &&
      __any_sync(0xffffffffu, lane == 7) && !__all_sync(0xffffffffu, lane < 31) &&
      __match_any_sync(0xffffffffu, lane / 8) == 0xffu << (lane / 8 * 8) &&
      __reduce_add_sync(0xffffffffu, static_cast<unsigned>(lane)) == 496u &&
      __reduce_min_sync(0xffffffffu, -lane) == -31 && __reduce_max_sync(0xffffffffu, -lane) == 0 &&
      __syncthreads_count(lane < 3) == 12 && __syncthreads_and(1) && !__syncthreads_or(0);
  out[threadIdx.x] = ok ? 1.0f : NAN;
}

}  // namespace

std::vector<Bug> barrier_bugs() {
  constexpr const char* kRace = "data race on shared memory";
  return {
      {"no_barrier_before_read", [](float* o, const float*) { go(no_barrier_before_read, 1, o); }, "nan",
       "nan", "read of uninitialised shared memory"},
      {"no_barrier_before_rewrite", [](float* o, const float*) { go(no_barrier_before_rewrite, 1, o); },
       "differs", "differs", kRace},
      {"all_threads_write_one_place", [](float* o, const float*) { go(all_threads_write_one_place, 1, o); },
       "differs", "differs", kRace},
      {"divergent_barrier", [](float* o, const float*) { go(divergent_barrier, 1, o); },
       "divergent barrier: this thread is in the barrier at bugs_sync.cu:", "divergent barrier",
       "divergent barrier"},
      {"barrier_after_some_returned", [](float* o, const float*) { go(barrier_after_some_returned, 1, o); },
       "__syncthreads reached by 64 threads, but 64 threads of the block have returned", "have returned",
       "have returned"},
      {"named_barrier_short_of_threads",
       [](float* o, const float*) { go(named_barrier_short_of_threads, 1, o); },
       "threads 0-95 wait in a named barrier", "threads 96-127 have returned", "deadlock in block (0,0,0)"},
      {"named_barrier_of_100_threads", [](float* o, const float*) { go(named_barrier_of_100_threads, 1, o); },
       "needs a multiple of 32", "needs a multiple of 32", "needs a multiple of 32"},
      {"named_barrier_17", [](float* o, const float*) { go(named_barrier_17, 1, o); }, "the ids are 1 to 15",
       "the ids are 1 to 15", "the ids are 1 to 15"},
      {"named_barrier_without_empty_signal",
       [](float* o, const float*) { go(named_barrier_without_empty_signal, 1, o); }, "deadlock in block",
       "deadlock in block", "deadlock in block"},
      {"endless_spin", [](float* o, const float*) { go(endless_spin, 1, reinterpret_cast<unsigned*>(o)); },
       "wait in a spin loop", "wait in a spin loop", "wait in a spin loop"},
  };
}

std::vector<Bug> warp_bugs() {
  return {
      {"no_syncwarp", [](float* o, const float*) { go(no_syncwarp, 1, o); }, "nan", "nan",
       "read of uninitialised shared memory"},
      {"no_syncwarp_before_rewrite", [](float* o, const float*) { go(no_syncwarp_before_rewrite, 1, o); },
       "differs", "differs", "data race on shared memory"},
      {"syncwarp_of_the_other_half", [](float* o, const float*) { go(syncwarp_of_the_other_half, 1, o); },
       "nan", "nan", "read of uninitialised shared memory"},
      {"divergent_collective", [](float* o, const float*) { go(divergent_collective, 1, o); },
       "divergent warp collective: this lane executes __syncwarp (mask ffffffff)", "waits in __shfl_xor_sync",
       "divergent warp collective"},
      {"lanes_missing", [](float* o, const float*) { go(lanes_missing, 1, o); },
       "threads 0-15,32-47,64-79,96-111 wait in __shfl_xor_sync", "deadlock", "deadlock"},
      {"shuffle_from_returned_lane", [](float* o, const float*) { go(shuffle_from_returned_lane, 1, o); },
       "shuffle: lane 0 reads lane 16, which is not in the mask or has returned", "has returned",
       "has returned"},
      {"shuffle_outside_mask", [](float* o, const float*) { go(shuffle_outside_mask, 1, o); },
       "shuffle: lane 8 reads lane 16", "shuffle: lane 8", "shuffle: lane 8"},
      {"lane_not_in_its_mask", [](float* o, const float*) { go(lane_not_in_its_mask, 1, o); },
       "the calling lane is not in its own mask", "not in its own mask", "not in its own mask"},
      {"shuffle_width_of_3", [](float* o, const float*) { go(shuffle_width_of_3, 1, o); },
       "power of two up to 32", "power of two up to 32", "power of two up to 32"},
      {"order_of_lanes",
       [](float* o, const float*) {
         unsigned* counter = nullptr;
         cudaMalloc(&counter, 4);
         cudaMemset(counter, 0, 4);
         go(order_of_lanes, 1, o, counter);
         cudaFree(counter);
       },
       "differs", "differs", "differs"},
      {"order_of_blocks", [](float* o, const float*) { go(order_of_blocks, 3, o); }, "differs", "differs",
       "differs"},
      {"trapped", [](float* o, const float*) { go(trapped, 1, o); },
       ", block (0,0,0) thread (5,0,0) (warp 0 lane 5), kernel launched at bugs_sync.cu:", "__trap()",
       "__trap()"},
  };
}

std::vector<Bug> correct_sync_kernels() {
  return {
      {"named_pipeline", [](float* o, const float*) { go(named_pipeline, 1, o); }, "", "", ""},
      {"with_syncwarp", [](float* o, const float*) { go(with_syncwarp, 1, o); }, "", "", ""},
      {"halves_apart", [](float* o, const float*) { go(halves_apart, 1, o); }, "", "", ""},
      {"votes", [](float* o, const float*) { go(votes, 1, o); }, "", "", ""},
  };
}

}  // namespace heed::testing
