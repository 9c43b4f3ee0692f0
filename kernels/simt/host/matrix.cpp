// ldmatrix and mma.sync: the last lane to arrive does the work of the warp.
#include <algorithm>
#include <cstring>

#include <cuda_fp16.h>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/memory.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/ptx.h>

namespace heed::emulator {
namespace {

struct LoadOperand {
  const unsigned char* row;
  uint32_t* out;
  int count;
  bool transposed;
};

// Lane `lane` of one 8×8 matrix whose rows start at row[0..7].
uint32_t fragment(const unsigned char* const* row, int lane, bool transposed) {
  uint32_t out;
  if (!transposed) {
    memcpy(&out, row[lane / 4] + lane % 4 * 4, 4);
    return out;
  }
  uint16_t first, second;
  memcpy(&first, row[lane % 4 * 2] + lane / 4 * 2, 2);
  memcpy(&second, row[lane % 4 * 2 + 1] + lane / 4 * 2, 2);
  return first | static_cast<uint32_t>(second) << 16;
}

void load_for_warp(void* const* operands, uint32_t mask, Location at) {
  if (mask != ~0u) fail("ldmatrix: needs all 32 lanes of the warp", at);
  const auto operand = [&](int lane) -> const LoadOperand& {
    return *static_cast<LoadOperand*>(operands[lane]);
  };
  const unsigned first_thread = machine.current->thread & ~31u;
  for (int matrix = 0; matrix < operand(0).count; ++matrix) {
    const unsigned char* row[8];
    int rows_in_bank[8] = {};
    for (int r = 0; r < 8; ++r) {
      const int lane = 8 * matrix + r;
      row[r] = operand(lane).row;
      if (!in_shared_memory(row[r], 16))
        fail("ldmatrix: the row of lane " + std::to_string(lane) + " is not in shared memory", at);
      if (reinterpret_cast<uintptr_t>(row[r]) % 16 != 0)
        fail("ldmatrix: misaligned address, the row of lane " + std::to_string(lane) +
                 " does not start at a multiple of 16",
             at);
      if (monitor) monitor->access(row[r], 16, false, first_thread + static_cast<unsigned>(lane), at);
      ++rows_in_bank[reinterpret_cast<uintptr_t>(row[r]) / 16 % 8];
    }
    ++stats().ldmatrix_phases;
    stats().ldmatrix_wavefronts += static_cast<uint64_t>(*std::max_element(rows_in_bank, rows_in_bank + 8));
    for (int lane = 0; lane < 32; ++lane)
      operand(lane).out[matrix] = fragment(row, lane, operand(lane).transposed);
  }
}

struct MultiplyOperand {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
  bool is_bf16;
};

float widen(uint32_t half, bool is_bf16) {
  if (is_bf16) {
    const uint32_t word = half << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
  }
  __half_raw raw;
  raw.x = static_cast<unsigned short>(half);
  return __half2float(__half(raw));
}

struct Tiles {
  float a[16][16], b[16][8], d[16][8];
};

void gather(Tiles& tiles, void* const* operands) {
  for (int lane = 0; lane < 32; ++lane) {
    const MultiplyOperand& o = *static_cast<MultiplyOperand*>(operands[lane]);
    const int g = lane / 4, t = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = g + (i & 1) * 8, col = t + (i >> 1) * 8;
      tiles.a[row][col] = widen(o.a[i] & 0xffff, o.is_bf16);
      tiles.a[row][col + 1] = widen(o.a[i] >> 16, o.is_bf16);
      tiles.d[g + (i >> 1) * 8][t + (i & 1)] = o.d[i];
    }
    for (int i = 0; i < 2; ++i) {
      tiles.b[t + i * 8][g] = widen(o.b[i] & 0xffff, o.is_bf16);
      tiles.b[t + i * 8 + 1][g] = widen(o.b[i] >> 16, o.is_bf16);
    }
  }
}

void multiply_for_warp(void* const* operands, uint32_t mask, Location at) {
  if (mask != ~0u) fail("mma: needs all 32 lanes of the warp", at);
  Tiles tiles;
  gather(tiles, operands);
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j) tiles.d[i][j] += tiles.a[i][k] * tiles.b[k][j];
  for (int lane = 0; lane < 32; ++lane) {
    const MultiplyOperand& o = *static_cast<MultiplyOperand*>(operands[lane]);
    const int g = lane / 4, t = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) o.d[i] = tiles.d[g + (i >> 1) * 8][t + (i & 1)];
  }
}

}  // namespace

void load_matrices(uint32_t* out, int count, bool transposed, const void* row, const char* what,
                   Location at) {
  LoadOperand operand{static_cast<const unsigned char*>(row), out, count, transposed};
  warp_collective(what, load_for_warp, ~0u, &operand, at);
}

void multiply_m16n8k16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, bool is_bf16, Location at) {
  MultiplyOperand operand{d, a, {b0, b1}, is_bf16};
  warp_collective(is_bf16 ? "mma_m16n8k16_bf16" : "mma_m16n8k16_f16", multiply_for_warp, ~0u, &operand, at);
}

}  // namespace heed::emulator
