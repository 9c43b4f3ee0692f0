#include <heed/kernels/simt/simt.h>

#include "ptx_kernels.h"

namespace heed::testing {
namespace {

struct alignas(16) Rows {
  uint16_t value[32][8];
};

template <int kCount, bool kTransposed>
__global__ void ldmatrix_kernel(const uint16_t* in, uint32_t* out) {
  auto& rows = simt::shared<Rows>();
  const int lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) rows.value[lane][i] = in[lane * 8 + i];
  __syncwarp();
  const void* row = rows.value[lane % (8 * kCount)];
  uint32_t matrix[kCount];
  if constexpr (kCount == 1)
    kTransposed ? simt::ldmatrix_x1_trans(matrix, row) : simt::ldmatrix_x1(matrix, row);
  if constexpr (kCount == 2)
    kTransposed ? simt::ldmatrix_x2_trans(matrix, row) : simt::ldmatrix_x2(matrix, row);
  if constexpr (kCount == 4)
    kTransposed ? simt::ldmatrix_x4_trans(matrix, row) : simt::ldmatrix_x4(matrix, row);
  for (int i = 0; i < kCount; ++i) out[lane * kCount + i] = matrix[i];
}

struct alignas(128) RowsFurtherOn {
  uint16_t value[8 + 32][8];
};

template <bool kTransposed>
__global__ void turned_ldmatrix_kernel(const uint16_t* in, uint32_t* out) {
  auto& rows = simt::shared<RowsFurtherOn>();
  const int lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) rows.value[8 + lane][i] = in[lane * 8 + i];
  __syncwarp();
  const void* row = rows.value[lane ^ 3];
  uint32_t matrix[4];
  kTransposed ? simt::ldmatrix_x4_trans(matrix, row, 3 * 16, 8 * 16)
              : simt::ldmatrix_x4(matrix, row, 3 * 16, 8 * 16);
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = matrix[i];
}

__device__ uint32_t pair(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }

__device__ void add_to_tile(float* d, const float (&values)[4]) {
  const int row = threadIdx.x / 4, col = threadIdx.x % 4 * 2;
  for (int i = 0; i < 4; ++i) d[(row + i / 2 * 8) * 8 + col + i % 2] = values[i];
}

__device__ void load_tile(const float* d, float (&values)[4]) {
  const int row = threadIdx.x / 4, col = threadIdx.x % 4 * 2;
  for (int i = 0; i < 4; ++i) values[i] = d[(row + i / 2 * 8) * 8 + col + i % 2];
}

template <bool kBf16>
__global__ void mma_kernel(const uint16_t* a, const uint16_t* b, float* d) {
  const int row = threadIdx.x / 4, col = threadIdx.x % 4 * 2;
  uint32_t fragment[4];
  for (int i = 0; i < 4; ++i) {
    const uint16_t* from = a + (row + i % 2 * 8) * 16 + col + i / 2 * 8;
    fragment[i] = pair(from[0], from[1]);
  }
  const uint32_t b0 = pair(b[col * 8 + row], b[(col + 1) * 8 + row]);
  const uint32_t b1 = pair(b[(col + 8) * 8 + row], b[(col + 9) * 8 + row]);
  float values[4];
  load_tile(d, values);
  if constexpr (kBf16)
    simt::mma_m16n8k16_bf16(values, fragment, b0, b1);
  else
    simt::mma_m16n8k16_f16(values, fragment, b0, b1);
  add_to_tile(d, values);
}

struct alignas(16) Operands {
  uint16_t a[16][16];
  uint16_t b[16][8];
};

__global__ void mma_after_ldmatrix_kernel(const uint16_t* a, const uint16_t* b, float* d) {
  auto& operands = simt::shared<Operands>();
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) operands.a[i / 16][i % 16] = a[i];
  for (int i = lane; i < 128; i += 32) operands.b[i / 8][i % 8] = b[i];
  __syncwarp();
  uint32_t fragment[4], columns[2];
  simt::ldmatrix_x4(fragment, &operands.a[lane % 16][lane / 16 * 8]);
  simt::ldmatrix_x2_trans(columns, operands.b[lane % 16]);
  float values[4];
  load_tile(d, values);
  simt::mma_m16n8k16_bf16(values, fragment, columns[0], columns[1]);
  add_to_tile(d, values);
}

struct alignas(16) Pieces {
  unsigned char byte[32 * 16];
};

template <int kBytes>
__global__ void cp_async_kernel(int valid, const unsigned char* in, unsigned char* out) {
  auto& pieces = simt::shared<Pieces>();
  const int first = threadIdx.x * kBytes;
  simt::cp_async<kBytes>(pieces.byte + first, in + first, static_cast<int>(threadIdx.x) < valid);
  simt::cp_async_commit();
  simt::cp_async_wait<0>();
  for (int i = 0; i < kBytes; ++i) out[first + i] = pieces.byte[first + i];
}

__global__ void exp2_kernel(const float* in, float* out) {
  out[threadIdx.x] = simt::exp2_approx(in[threadIdx.x]);
}

__global__ void opaque_kernel(const int* in, int* out) { out[threadIdx.x] = simt::opaque(in[threadIdx.x]); }

struct alignas(128) Strided {
  uint16_t value[8][64];
};

__global__ void strided_ldmatrix_kernel(bool swizzled, uint32_t* out) {
  auto& rows = simt::shared<Strided>();
  for (int i = threadIdx.x; i < 8 * 64; i += 32) rows.value[i / 64][i % 64] = static_cast<uint16_t>(i);
  __syncwarp();
  const int row = threadIdx.x % 8;
  uint32_t matrix[1];
  simt::ldmatrix_x1(matrix, &rows.value[row][swizzled ? row * 8 : 0]);
  out[threadIdx.x] = matrix[0];
}

template <class... Parameters, class... Arguments>
void go(void (*kernel)(Parameters...), Arguments... arguments) {
  if (simt::launch(kernel, dim3(1), dim3(32), 0, nullptr, arguments...) != cudaSuccess) __builtin_trap();
}

}  // namespace

void run_ldmatrix(int count, bool transposed, const uint16_t* in, uint32_t* out) {
  if (count == 1) transposed ? go(ldmatrix_kernel<1, true>, in, out) : go(ldmatrix_kernel<1, false>, in, out);
  if (count == 2) transposed ? go(ldmatrix_kernel<2, true>, in, out) : go(ldmatrix_kernel<2, false>, in, out);
  if (count == 4) transposed ? go(ldmatrix_kernel<4, true>, in, out) : go(ldmatrix_kernel<4, false>, in, out);
}

void run_turned_ldmatrix(bool transposed, const uint16_t* in, uint32_t* out) {
  go(transposed ? turned_ldmatrix_kernel<true> : turned_ldmatrix_kernel<false>, in, out);
}

void run_mma(bool is_bf16, const uint16_t* a, const uint16_t* b, float* d) {
  is_bf16 ? go(mma_kernel<true>, a, b, d) : go(mma_kernel<false>, a, b, d);
}

void run_mma_after_ldmatrix(const uint16_t* a, const uint16_t* b, float* d) {
  go(mma_after_ldmatrix_kernel, a, b, d);
}

void run_cp_async(int bytes, int valid, const unsigned char* in, unsigned char* out) {
  if (bytes == 4) go(cp_async_kernel<4>, valid, in, out);
  if (bytes == 8) go(cp_async_kernel<8>, valid, in, out);
  if (bytes == 16) go(cp_async_kernel<16>, valid, in, out);
}

void run_opaque(const int* in, int* out) { go(opaque_kernel, in, out); }
void run_exp2(const float* in, float* out) { go(exp2_kernel, in, out); }
void run_strided_ldmatrix(bool swizzled, uint32_t* out) { go(strided_ldmatrix_kernel, swizzled, out); }

}  // namespace heed::testing
