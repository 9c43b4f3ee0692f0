// Mistakes with asynchronous copies and warp matrix instructions, and correct uses of both.
#include <heed/kernels/simt/simt.h>

#include "bugs.h"

namespace heed::testing {
namespace {

struct alignas(16) Row {
  float value[kThreads];
};

template <class... Parameters, class... Arguments>
void go(void (*kernel)(Parameters...), Arguments... arguments) {
  simt::launch(kernel, dim3(1), dim3(kThreads), 0, nullptr, arguments...);
}

__device__ void copy_row(Row& row, const float* in) {
  if (threadIdx.x < 32) simt::cp_async<16>(&row.value[threadIdx.x * 4], in + threadIdx.x * 4);  // here
  simt::cp_async_commit();
}

__global__ void no_wait(float* out, const float* in) {
  auto& row = simt::shared<Row>();
  copy_row(row, in);
  __syncthreads();
  out[threadIdx.x] = row.value[threadIdx.x];  // here
}

__global__ void no_barrier_after_wait(float* out, const float* in) {
  auto& row = simt::shared<Row>();
  copy_row(row, in);
  simt::cp_async_wait<0>();
  out[threadIdx.x] = row.value[kThreads - 1 - threadIdx.x];  // here
}

__global__ void refilled_too_early(float* out, const float* in) {
  auto& row = simt::shared<Row>();
  float sum = 0.0f;
  for (int i = 0; i < 2; ++i) {
    copy_row(row, in + i * kThreads);
    simt::cp_async_wait<0>();
    __syncthreads();
    sum += row.value[kThreads - 1 - threadIdx.x];  // here
  }
  out[threadIdx.x] = sum;
}

struct Stages {
  Row row[2];
};

// Double buffering; correct if kInFlight is 1.
template <int kInFlight>
__global__ void pipeline(float* out, const float* in) {
  auto& stages = simt::shared<Stages>();
  constexpr int kSteps = 5;
  float sum = 0.0f;
  copy_row(stages.row[0], in);
  for (int i = 0; i < kSteps; ++i) {
    if (i + 1 < kSteps)
      copy_row(stages.row[(i + 1) % 2], in + (i + 1) * kThreads);
    else
      simt::cp_async_commit();
    simt::cp_async_wait<kInFlight>();
    __syncthreads();
    sum += stages.row[i % 2].value[kThreads - 1 - threadIdx.x];  // here
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}

__global__ void misaligned_copy(float* out, const float* in) {
  auto& row = simt::shared<Row>();
  if (threadIdx.x < 31) simt::cp_async<16>(&row.value[threadIdx.x * 4], in + threadIdx.x * 4 + 2);  // here
  out[threadIdx.x] = 0.0f;
}

__global__ void copy_to_global(float* out, const float* in) {
  simt::cp_async<4>(out + threadIdx.x, in + threadIdx.x);  // here
}

__global__ void zero_filled(float* out, const float* in) {  // lanes beyond the end read nothing and get zeros
  auto& row = simt::shared<Row>();
  const int first = 2048 - 64;
  simt::cp_async<4>(&row.value[threadIdx.x], in + first + threadIdx.x, threadIdx.x < 64);
  simt::cp_async_commit();
  simt::cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = row.value[kThreads - 1 - threadIdx.x];
}

__device__ void fill(Row& row) {
  row.value[threadIdx.x] = 0.0f;
  __syncthreads();
}

__global__ void misaligned_matrix_row(float* out) {
  auto& row = simt::shared<Row>();
  fill(row);
  uint32_t matrix[4];
  simt::ldmatrix_x4(matrix, row.value + threadIdx.x % 8);  // here
  out[threadIdx.x] = static_cast<float>(matrix[0]);
}

__global__ void matrix_in_global_memory(float* out, const float* in) {
  uint32_t matrix[1];
  simt::ldmatrix_x1(matrix, in + threadIdx.x % 8 * 4);  // here
  out[threadIdx.x] = static_cast<float>(matrix[0]);
}

__global__ void matrix_before_barrier(float* out) {
  auto& row = simt::shared<Row>();
  row.value[threadIdx.x] = 0.0f;  // here
  uint32_t matrix[4];
  simt::ldmatrix_x4(matrix, row.value + threadIdx.x % 32 * 4);  // here
  out[threadIdx.x] = __uint_as_float(matrix[0]);
}

__global__ void product_by_half_a_warp(float* out) {
  float d[4] = {};
  const uint32_t a[4] = {};
  if (threadIdx.x % 32 >= 16) return;
  simt::mma_m16n8k16_bf16(d, a, 0, 0);  // here
  out[threadIdx.x] = d[0];
}

}  // namespace

std::vector<Bug> async_bugs() {
  return {
      {"no_wait", [](float* o, const float* i) { go(no_wait, o, i); }, "nan", "nan",
       "while an asynchronous copy to it is in flight, issued by thread "},
      {"no_barrier_after_wait", [](float* o, const float* i) { go(no_barrier_after_wait, o, i); }, "nan",
       "nan", "read of uninitialised shared memory"},
      {"refilled_too_early", [](float* o, const float* i) { go(refilled_too_early, o, i); }, "differs",
       "differs", "data race on shared memory"},
      {"waits_for_too_few", [](float* o, const float* i) { go(pipeline<2>, o, i); }, "nan", "nan",
       "while an asynchronous copy to it is in flight"},
      {"misaligned_copy", [](float* o, const float* i) { go(misaligned_copy, o, i); },
       "cp_async source: misaligned address, 8 bytes past a multiple of 16", "cp_async source: misaligned",
       "cp_async source: misaligned"},
      {"copy_to_global", [](float* o, const float* i) { go(copy_to_global, o, i); },
       "the destination is not in shared memory", "the destination is not in shared memory",
       "the destination is not in shared memory"},
      {"misaligned_matrix_row", [](float* o, const float*) { go(misaligned_matrix_row, o); },
       "ldmatrix: misaligned address, the row of lane 1", "ldmatrix: misaligned", "ldmatrix: misaligned"},
      {"matrix_in_global_memory", [](float* o, const float* i) { go(matrix_in_global_memory, o, i); },
       "the row of lane 0 is not in shared memory", "is not in shared memory", "is not in shared memory"},
      {"matrix_before_barrier", [](float* o, const float*) { go(matrix_before_barrier, o); }, "differs",
       "differs", "data race on shared memory"},
      {"product_by_half_a_warp", [](float* o, const float*) { go(product_by_half_a_warp, o); },
       "mma: needs all 32 lanes of the warp", "needs all 32 lanes", "needs all 32 lanes"},
  };
}

std::vector<Bug> correct_async_kernels() {
  return {
      {"pipeline", [](float* o, const float* i) { go(pipeline<1>, o, i); }, "", "", ""},
      {"zero_filled", [](float* o, const float* i) { go(zero_filled, o, i); }, "", "", ""},
  };
}

}  // namespace heed::testing
