// The gradient of layer normalisation, of a tensor or of what is added to a residual.
#include <algorithm>

#include <heed/kernels/cuda/column_sums.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/norm/layer_norm.cuh>
#include <heed/kernels/cuda/norm/row_stream.cuh>

namespace heed::cuda {
namespace {

using kernels::ResidualLayerNormBackward;

// Few blocks with many rows each, since each leaves partial sums of all columns.
template <class Layout>
using BackwardGroup = RowGroup<Layout, (Layout::kKeep ? 512 : Layout::kThreads)>;
constexpr int kResidentBlocks = 1;  // of a multiprocessor

template <class T, class Layout>
using BackwardStream = RowStream<T, Layout, BackwardGroup<Layout>, 2>;

// to (+)= v
template <class T, int kWidth>
__device__ __forceinline__ void add_to(T* to, bool accumulate, const float (&v)[kWidth]) {
  float out[kWidth];
  load_or(out, accumulate ? to : nullptr, 0, 0.0f);
  for (int j = 0; j < kWidth; ++j) out[j] += v[j];
  store(to, out);
}

// Whether a row's squares overflow. Then differences of its elements may too, and a backward scales before.
__device__ __forceinline__ bool is_mapped(float rstd) { return rstd < 0x1p-64f; }

// The gradients of pieces of a row, from what its normalised elements get: adds what comes from elsewhere.
template <int kWidth, class T>
__device__ __forceinline__ void write_gradient(const ResidualLayerNormBackward<T>& args, int64_t at,
                                               float (&g)[kWidth]) {
  float out[kWidth];
  load_or(out, args.gsum, at, 0.0f);
  for (int j = 0; j < kWidth; ++j) out[j] += g[j];
  if (args.gresidual != nullptr) add_to(args.gresidual + at, args.accumulate_residual, out);
  if (args.gx == nullptr) return;
  apply_dropout(out, args.dropout, at);
  add_to(args.gx + at, args.accumulate_x, out);
}

// One row: its gradient (g - mean(g) - n mean(g n)) rstd, with g = gy * weight and n the normalised x, and
// what it adds to the sums over rows, `columns`, which only rows that are kept have.
template <class Group, class T, class Layout>
__device__ __forceinline__ void backward_row(const ResidualLayerNormBackward<T>& args, int64_t row,
                                             bool exists, const Layout& layout, float mean, float rstd,
                                             float share, int turn, RowPart<T, Layout>& gy_part,
                                             RowPart<T, Layout>& x_part,
                                             [[maybe_unused]] Pieces<Layout>& gweight,
                                             [[maybe_unused]] Pieces<Layout>& gbias) {
  constexpr int kWidth = Layout::kWidth;
  float inverse = rstd;
  if (is_mapped(rstd)) {
    x_part.map(layout, rstd, mean * rstd);
    mean = 0.0f;
    inverse = 1.0f;
  }
  // Makes g of gy and n of x.
  const auto find = [&](auto& g, auto& n, int piece, auto col) {
    float weight[kWidth];
    load_or(weight, args.weight, col, 1.0f);
    for (int j = 0; j < kWidth; ++j) {
      n[j] = (n[j] - mean) * inverse;
      if constexpr (Layout::kKeep) {
        gweight.value[piece][j] += g[j] * n[j];
        gbias.value[piece][j] += g[j];
      }
      g[j] = __fmul_rn(g[j], weight[j]);  // rounded before it is added up: g - mean(g) is 0 in a row of one
    }
  };
  // Calls f(g, n, piece, column): in place of what is kept, or again.
  const auto each = [&](bool first, auto f) {
    layout.each([&](int piece, auto col) {
      if constexpr (Layout::kKeep) {
        auto &g = gy_part.kept().value[piece], &n = x_part.kept().value[piece];
        if (first) find(g, n, piece, col);
        f(g, n, col);
      } else {
        float g[kWidth], n[kWidth];
        gy_part.read(g, piece, col);
        x_part.read(n, piece, col);
        find(g, n, piece, col);
        f(g, n, col);
      }
    });
  };
  float2 sums{0.0f, 0.0f};
  each(true, [&](auto& g, auto& n, auto) {
    for (int j = 0; j < kWidth; ++j) {
      sums.x += g[j];
      sums.y += g[j] * n[j];
    }
  });
  if (args.gx == nullptr && args.gresidual == nullptr) return;
  sums = Group::sum(sums, turn);
  const float cols = static_cast<float>(layout.cols);
  const float mean_g = divide(sums.x, cols, share), mean_gn = divide(sums.y, cols, share);
  if (!exists) return;
  each(false, [&](auto& g, auto& n, auto col) {
    for (int j = 0; j < kWidth; ++j) g[j] = (g[j] - mean_g - n[j] * mean_gn) * rstd;
    write_gradient(args, row * args.cols + col, g);
  });
}

// Bytes in which the warps or groups of a block add up their column sums.
template <class Layout>
size_t column_sum_bytes(int64_t cols) {
  constexpr int kParts = BackwardGroup<Layout>::kBlock / std::max(Layout::kThreads, 32);
  return Layout::kKeep && kParts > 1 ? kParts * 2 * static_cast<size_t>(cols) * sizeof(float) : 0;
}

// Neighbouring floats in shared memory, at an address aligned for this.
template <int kWidth>
struct alignas(kWidth % 4 == 0 ? 16 : 4) ValuesOf {
  float value[kWidth];
};

// Writes a block's column sums as its partials: [0, cols) of `to_weight` and `to_bias`. All threads call it.
template <class Layout>
__device__ __forceinline__ void write_partials(float* to_weight, float* to_bias, const Layout& layout,
                                               Pieces<Layout>& gweight, Pieces<Layout>& gbias) {
  constexpr int kThreads = Layout::kThreads, kBlock = BackwardGroup<Layout>::kBlock;
  constexpr int kPartThreads = kThreads < 32 ? 32 : kThreads;
#pragma unroll
  for (int offset = kThreads; offset < 32; offset *= 2)  // groups of a warp
    for (int i = 0; i < Layout::kPieces; ++i)
      for (int j = 0; j < Layout::kWidth; ++j) {
        gweight.value[i][j] += __shfl_xor_sync(0xffffffffu, gweight.value[i][j], offset);
        gbias.value[i][j] += __shfl_xor_sync(0xffffffffu, gbias.value[i][j], offset);
      }
  if constexpr (kPartThreads == kBlock) {
    layout.each([&](int piece, int col) {
      store(to_weight + col, gweight.value[piece]);
      store(to_bias + col, gbias.value[piece]);
    });
    return;
  }
  simt::Arena<> arena;
  float* const parts = arena.take<float>(static_cast<size_t>(kBlock / kPartThreads * 2 * layout.cols));
  const int part = static_cast<int>(threadIdx.x) / kPartThreads;
  __syncthreads();  // rows were there
  if (static_cast<int>(threadIdx.x) % kPartThreads < kThreads)
    layout.each([&](int piece, int col) {
      using Values = ValuesOf<Layout::kWidth>;
      float* const to = parts + 2 * part * layout.cols + col;
      auto &weight = reinterpret_cast<Values&>(*to), &bias = reinterpret_cast<Values&>(to[layout.cols]);
      Values values;
      memcpy(&values, gweight.value[piece], sizeof values);
      weight = values;
      memcpy(&values, gbias.value[piece], sizeof values);
      bias = values;
    });
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < 2 * layout.cols; i += kBlock) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < kBlock / kPartThreads; ++p) sum += parts[2 * p * layout.cols + i];
    (i < layout.cols ? to_weight + i : to_bias + i - layout.cols)[0] = sum;
  }
}

// partials: [gweight, gbias][blocks][cols], or null if neither is wanted or the row is too long to be kept.
// Budget: 128 registers, 256 bytes shared.
template <class T, class Layout>
__global__ void __launch_bounds__(BackwardGroup<Layout>::kBlock, kResidentBlocks)
    backward_kernel(ResidualLayerNormBackward<T> args, float* partials) {
  using Group = BackwardGroup<Layout>;
  const Layout layout(args.cols, Group::thread());
  Pieces<Layout> gweight{}, gbias{};
  BackwardStream<T, Layout> stream(layout, args.rows, args.gy, args.sum);
  const float share = simt::rcp_approx(static_cast<float>(layout.cols));
  int64_t row = Group::first_row();
  float2 next{0.0f, 0.0f};  // the mean and rstd of the next row
  const auto look_ahead = [&](int64_t to) {
    if (to < args.rows) next = {args.mean[to], args.rstd[to]};
  };
  look_ahead(row);
  for (int turn = 0; Group::warp_has_row(row, args.rows); row += Group::row_step(), turn ^= 1) {
    const bool exists = Group::kThreads >= 32 || row < args.rows;
    RowPart<T, Layout> gy(args.gy + row * args.cols), x(args.sum + row * args.cols);
    stream.wait();
    if constexpr (Layout::kKeep) {
      const auto from = [&](int source) {
        return [&, source](auto& v, int piece, auto col) {
          if (exists) stream.read(v, source, row, turn, piece, col);
        };
      };
      gy.fill(layout, from(0));
      x.fill(layout, from(1));
    }
    stream.release(row, turn);
    const float2 statistics = next;
    look_ahead(row + Group::row_step());
    backward_row<Group>(args, row, exists, layout, statistics.x, statistics.y, share, turn, gy, x, gweight,
                        gbias);
  }
  if constexpr (Layout::kKeep)
    if (partials != nullptr)
      write_partials(partials + int64_t{blockIdx.x} * args.cols,
                     partials + (int64_t{gridDim.x} + blockIdx.x) * args.cols, layout, gweight, gbias);
}

constexpr int kColumnTile = 32;  // columns of a block of the next kernel
constexpr int kColumnRows = 8;   // rows it works on at a time

struct ColumnTile {
  float weight[kColumnRows][kColumnTile], bias[kColumnRows][kColumnTile];
};

// The sums over rows where a row is too long to be kept: a block takes kColumnTile columns of every
// gridDim.y-th stretch of kColumnRows rows.
// Budget: 40 registers, 2048 bytes shared.
template <class T>
__global__ void __launch_bounds__(kColumnTile* kColumnRows)
    column_kernel(ResidualLayerNormBackward<T> args, float* partials) {
  auto& tile = simt::shared<ColumnTile>();
  const int64_t col = int64_t{blockIdx.x} * kColumnTile + threadIdx.x;
  float weight = 0.0f, bias = 0.0f;
  if (col < args.cols)
    for (int64_t row = int64_t{blockIdx.y} * kColumnRows + threadIdx.y; row < args.rows;
         row += int64_t{gridDim.y} * kColumnRows) {
      const float gy = args.gy[row * args.cols + col], x = args.sum[row * args.cols + col];
      const float mean = args.mean[row], rstd = args.rstd[row];
      weight += gy * (is_mapped(rstd) ? x * rstd - mean * rstd : (x - mean) * rstd);
      bias += gy;
    }
  tile.weight[threadIdx.y][threadIdx.x] = weight;
  tile.bias[threadIdx.y][threadIdx.x] = bias;
  __syncthreads();
  if (threadIdx.y != 0 || col >= args.cols) return;
  for (int row = 1; row < kColumnRows; ++row) {
    weight += tile.weight[row][threadIdx.x];
    bias += tile.bias[row][threadIdx.x];
  }
  partials[int64_t{blockIdx.y} * args.cols + col] = weight;
  partials[(int64_t{gridDim.y} + blockIdx.y) * args.cols + col] = bias;
}

// No rows: the sums over them are zero.
template <class T>
void clear_sums(const char* what, const ResidualLayerNormBackward<T>& args) {
  const size_t bytes = static_cast<size_t>(args.cols) * sizeof(float);
  if (args.gweight && !args.accumulate_weight)
    check(cudaMemsetAsync(args.gweight, 0, bytes, current_stream()), what);
  if (args.gbias && !args.accumulate_bias)
    check(cudaMemsetAsync(args.gbias, 0, bytes, current_stream()), what);
}

}  // namespace

template <class T>
void normalize_rows_backward(const char* what, const ResidualLayerNormBackward<T>& args) {
  if (args.rows == 0) return clear_sums(what, args);
  const bool wants_sums = args.gweight != nullptr || args.gbias != nullptr;
  with_row_layout<T, 8, 16, 256>(
      args.cols,
      vectorizable<T>(args.cols, args.gy, args.gsum, args.sum, args.weight, args.gresidual, args.gx),
      [&]<class Layout>() {
        const dim3 grid = blocks_over_rows<BackwardGroup<Layout>>(args.rows, kResidentBlocks);
        const int64_t splits = Layout::kKeep
                                   ? int64_t{grid.x}
                                   : std::min<int64_t>(simt::ceil_div<int64_t>(args.rows, kColumnRows), 64);
        const size_t cols = static_cast<size_t>(args.cols);
        const Scratch scratch(wants_sums ? 2 * static_cast<size_t>(splits) * cols * sizeof(float) : 0);
        float* partials = wants_sums ? scratch.as<float>() : nullptr;
        if (args.gx != nullptr || args.gresidual != nullptr || (Layout::kKeep && wants_sums))
          launch(what, backward_kernel<T, Layout>, grid, dim3(BackwardGroup<Layout>::kBlock),
                 std::max(BackwardStream<T, Layout>::kBytes, column_sum_bytes<Layout>(args.cols)), args,
                 partials);
        if (!wants_sums) return;
        if (!Layout::kKeep)
          launch(what, column_kernel<T>,
                 dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(args.cols, kColumnTile)),
                      static_cast<unsigned>(splits)),
                 dim3(kColumnTile, kColumnRows), 0, args, partials);
        add_partials(what,
                     {{partials, args.gweight, args.accumulate_weight},
                      {partials + splits * args.cols, args.gbias, args.accumulate_bias}},
                     splits, args.cols);
      });
}

template void normalize_rows_backward<float>(const char*, const ResidualLayerNormBackward<float>&);
template void normalize_rows_backward<bfloat16>(const char*, const ResidualLayerNormBackward<bfloat16>&);

}  // namespace heed::cuda
