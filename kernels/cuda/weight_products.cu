// The gradients of many small weights and their biases by one launch: each alone has too few tiles for a GPU.
// A block sums one tile of 64 outputs by 64 inputs over all rows, which pass through shared memory in stages.
#include <algorithm>

#include <heed/kernels/cuda/attention/attention_tile.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/linear.h>

namespace heed::cuda {
namespace {

using kernels::WeightProduct;

constexpr int kSide = kernels::kWeightTile;  // outputs and inputs of a block
constexpr int kStages = 4;                   // of which all but one are on their way
constexpr int kProducts = 56;                // of a launch, whose arguments may take 4 KiB

template <class T>
struct Entry {
  const T *g, *x;
  float *gweight, *gbias;
  int rows, in, out;
  int first_block;
  bool accumulate_weight, accumulate_bias;
  bool g_vectors, x_vectors,
      pairs;  // whether rows can be read 16 bytes, gweight written two values at a time
};

template <class T>
struct Table {
  Entry<T> entries[kProducts];
  int size;
};
static_assert(sizeof(Table<float>) <= 4096);

int tiles(int64_t size) { return static_cast<int>(simt::ceil_div<int64_t>(size, kSide)); }

template <class T>
Entry<T> entry_of(const WeightProduct<T>& p, int first_block) {
  return {.g = p.g,
          .x = p.x,
          .gweight = p.gweight,
          .gbias = p.gbias,
          .rows = static_cast<int>(p.rows),
          .in = static_cast<int>(p.in),
          .out = static_cast<int>(p.out),
          .first_block = first_block,
          .accumulate_weight = p.accumulate_weight,
          .accumulate_bias = p.accumulate_bias,
          .g_vectors = vectorizable<T>(p.out, p.g),
          .x_vectors = vectorizable<T>(p.in, p.x),
          .pairs = p.in % 2 == 0 && aligned_for<2>(p.gweight)};
}

// Where a tile of the result begins.
struct Corner {
  int out, in;
};

// Writes or adds two neighbours, as far as there are any.
template <class T>
__device__ __forceinline__ void put(const Entry<T>& e, int out, int in, float left, float right) {
  if (out >= e.out || in >= e.in) return;
  float* const to = e.gweight + int64_t{out} * e.in + in;
  if (e.pairs) {
    float both[2] = {};
    if (e.accumulate_weight) load(both, to);
    both[0] += left, both[1] += right;
    store(to, both);
    return;
  }
  to[0] = e.accumulate_weight ? to[0] + left : left;
  if (in + 1 < e.in) to[1] = e.accumulate_weight ? to[1] + right : right;
}

template <class T>
__device__ __forceinline__ void put_bias(const Entry<T>& e, int out, float sum) {
  if (e.gbias != nullptr && out < e.out) e.gbias[out] = e.accumulate_bias ? e.gbias[out] + sum : sum;
}

// A thread's part of a tile. The sums of g over rows, for the bias, are formed where `sums`.
template <class T>
struct Part;

template <>
struct Part<bfloat16> {
  static constexpr int kThreads = 128, kRows = 32;  // rows of a stage
  static constexpr int kHalf = kSide / 2;           // each of the four warps has a quarter of the tile
  static constexpr uint32_t kOnes = 0x3f803f80u;    // two of bf16

  float products[2][4][4] = {}, sums[2][4] = {};
  const int first_out, first_in;

  __device__ __forceinline__ Part()
      : first_out(static_cast<int>(threadIdx.x) / 64 * kHalf),
        first_in(static_cast<int>(threadIdx.x) / 32 % 2 * kHalf) {}

  static __device__ __forceinline__ int place(int row, int chunk) { return Tile<kSide>::offset(row, chunk); }

  // Rows [row, row + 16) and columns [16 step, 16 step + 16), turned over, as the first operand.
  static __device__ __forceinline__ void turned(uint32_t (&out)[4], const bfloat16* tile, int row, int step) {
    const int lane = lane_id();
    simt::ldmatrix_x4_trans(out,
                            tile + row * kSide + place(lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
  }

  __device__ __forceinline__ void add(const bfloat16* g, const bfloat16* x, bool with_sums) {
#pragma unroll
    for (int row = 0; row < kRows; row += 16) {
      uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        turned(a[i], g, row, first_out / 16 + i);
        Tile<kSide>::columns(b[i], x, row, first_in / 16 + i);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n)
          simt::mma_m16n8k16_bf16(products[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        if (with_sums) simt::mma_m16n8k16_bf16(sums[m], a[m], kOnes, kOnes);
      }
    }
  }

  __device__ __forceinline__ void write(const Entry<bfloat16>& e, const Corner& corner,
                                        bool with_sums) const {
    const int group = lane_id() / 4, pair = lane_id() % 4;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int out = corner.out + first_out + m * 16 + half * 8 + group;
#pragma unroll
        for (int n = 0; n < 4; ++n)
          put(e, out, corner.in + first_in + n * 8 + pair * 2, products[m][n][2 * half],
              products[m][n][2 * half + 1]);
        if (with_sums && first_in == 0 && pair == 0) put_bias(e, out, sums[m][2 * half]);
      }
  }
};

template <>
struct Part<float> {
  static constexpr int kThreads = 256, kRows = 16;

  float products[4][4] = {}, sums[4] = {};
  const int first_out, first_in;

  __device__ __forceinline__ Part()
      : first_out(static_cast<int>(threadIdx.x) / 16 * 4), first_in(static_cast<int>(threadIdx.x) % 16 * 4) {}

  static __device__ __forceinline__ int place(int row, int chunk) { return row * kSide + chunk * 4; }

  __device__ __forceinline__ void add(const float* g, const float* x, bool) {
#pragma unroll 4
    for (int row = 0; row < kRows; ++row) {
      float a[4], b[4];
      load(a, g + row * kSide + first_out);
      load(b, x + row * kSide + first_in);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) products[i][j] += a[i] * b[j];
        sums[i] += a[i];
      }
    }
  }

  __device__ __forceinline__ void write(const Entry<float>& e, const Corner& corner, bool with_sums) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int out = corner.out + first_out + i;
#pragma unroll
      for (int j = 0; j < 4; j += 2)
        put(e, out, corner.in + first_in + j, products[i][j], products[i][j + 1]);
      if (with_sums && first_in == 0) put_bias(e, out, sums[i]);
    }
  }
};

template <class T>
struct alignas(128) Stages {
  alignas(16) T g[kStages][Part<T>::kRows * kSide];
  alignas(16) T x[kStages][Part<T>::kRows * kSide];
};

// Begins to copy the rows of one stage, columns [col, col + kSide), with zeros where there are none.
template <class T>
__device__ __forceinline__ void request(T* tile, const T* from, int row, int rows, int col, int cols,
                                        bool vectors) {
  constexpr int kElements = kVectorWidth<T>, kChunks = kSide / kElements;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < Part<T>::kRows * kChunks; i += Part<T>::kThreads) {
    const int to_row = i / kChunks, chunk = i % kChunks, first = col + chunk * kElements;
    const bool exists = row + to_row < rows && first < cols;
    const T* const source = from + (exists ? int64_t{row + to_row} * cols + first : 0);
    T* const to = tile + Part<T>::place(to_row, chunk);
    if (vectors) {
      simt::cp_async<16>(to, source, exists);
    } else {
#pragma unroll
      for (int j = 0; j < kElements; ++j) to[j] = exists && first + j < cols ? source[j] : T(0.0f);
    }
  }
}

// Budget: 128 registers, 32768 bytes shared.
template <class T>
__global__ void __launch_bounds__(Part<T>::kThreads) products_kernel(Table<T> table) {
  const int block = static_cast<int>(blockIdx.x);
  int at = 0;
  while (at + 1 < table.size && block >= table.entries[at + 1].first_block) ++at;
  const Entry<T>& e = table.entries[at];
  const int across = simt::ceil_div(e.in, kSide), number = block - e.first_block;
  const Corner corner{number / across * kSide, number % across * kSide};
  const bool with_sums = corner.in == 0 && e.gbias != nullptr;
  auto& stages = simt::shared<Stages<T>>();
  const auto ask_for = [&](int stage) {
    const int slot = stage % kStages, row = stage * Part<T>::kRows;
    if (row < e.rows) {
      request(stages.g[slot], e.g, row, e.rows, corner.out, e.out, e.g_vectors);
      request(stages.x[slot], e.x, row, e.rows, corner.in, e.in, e.x_vectors);
    }
    simt::cp_async_commit();
  };
  for (int stage = 0; stage < kStages - 1; ++stage) ask_for(stage);
  Part<T> part;
  const int count = simt::ceil_div(e.rows, Part<T>::kRows);
  for (int stage = 0; stage < count; ++stage) {
    simt::cp_async_wait<kStages - 2>();
    __syncthreads();  // all copies are there, and the stage before is read
    ask_for(stage + kStages - 1);
    part.add(stages.g[stage % kStages], stages.x[stage % kStages], with_sums);
  }
  part.write(e, corner, with_sums);
}

}  // namespace

template <class T>
void weight_products(const kernels::WeightProducts<T>& args) {
  Table<T> table{};
  int blocks = 0;
  const auto run = [&] {
    if (blocks > 0)
      launch("weight_products", products_kernel<T>, dim3(static_cast<unsigned>(blocks)),
             dim3(Part<T>::kThreads), 0, table);
    table = {};
    blocks = 0;
  };
  for (const WeightProduct<T>& product : args.products) {
    HEED_ASSERT(kernels::is_small_weight(product.rows, product.in, product.out),
                "weight_products: a large product");
    if (product.in == 0 || product.out == 0) continue;
    if (table.size == kProducts) run();
    table.entries[table.size++] = entry_of(product, blocks);
    blocks += tiles(product.out) * tiles(product.in);
  }
  run();
}

template void weight_products<float>(const kernels::WeightProducts<float>&);
template void weight_products<bfloat16>(const kernels::WeightProducts<bfloat16>&);

}  // namespace heed::cuda
