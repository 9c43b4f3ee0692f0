// Layer normalisation, of a tensor or of what is added to a residual.
#include <algorithm>

#include <heed/kernels/cuda/column_sums.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/layer_norm.cuh>
#include <heed/kernels/cuda/rows.cuh>

namespace heed::cuda {
namespace {

using kernels::ResidualLayerNormBackward;
using kernels::ResidualLayerNormForward;

// Blocks of the backward: a constant, so that the bits depend on the shape and not on the device.
constexpr int64_t kMaxBlocks = 256;

// Σ x / cols and Σ (x - that)² / cols.
template <int kThreads, class T, int kWidth, bool kKeep>
__device__ __forceinline__ float2 find_moments(const RowLayout<kThreads, kWidth, kKeep>& layout,
                                               const RowPart<T, kThreads, kWidth, kKeep>& x) {
  const float cols = static_cast<float>(layout.cols);
  float sum = 0.0f;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) sum += v[j];
  });
  const float mean = group_sum<kThreads>(sum) / cols;
  float squares = 0.0f;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) squares += (v[j] - mean) * (v[j] - mean);
  });
  return {mean, group_sum<kThreads>(squares) / cols};
}

template <class T>
__device__ __forceinline__ void write_statistics(const ResidualLayerNormForward<T>& args, int64_t row,
                                                 int thread, float mean, float rstd) {
  if (thread != 0 || args.mean == nullptr) return;
  args.mean[row] = mean;
  args.rstd[row] = rstd;
}

// For a row of which a sum overflows: x is mapped from now on, that is scaled and taken from the row's first
// element, from which elements that are all equal do not differ. Other ones differ by so much then that eps
// is nothing to them. Returns the mean and rstd of what is read.
template <class T, int kThreads, int kWidth, bool kKeep>
__device__ __forceinline__ float2 map_row(const ResidualLayerNormForward<T>& args, int64_t row,
                                          const RowLayout<kThreads, kWidth, kKeep>& layout,
                                          RowPart<T, kThreads, kWidth, kKeep>& x) {
  constexpr float kScale = 0x1p-96f;
  const T* const from = (args.residual == nullptr ? args.x : args.sum) + row * args.cols;
  __syncwarp();  // the first thread may have written it
  const float pivot = static_cast<float>(from[0]) * kScale;
  const RowLayout<kThreads, kWidth, false> again(args.cols, layout.thread);
  RowPart<T, kThreads, kWidth, false> mapped(again, from);
  mapped.map(again, kScale, pivot);
  x.map(layout, kScale, pivot);
  const float2 moments = find_moments<kThreads>(again, mapped);
  const bool equal = moments.y == 0.0f;
  const float rstd = 1.0f / sqrtf(equal ? static_cast<float>(args.eps) : moments.y);
  write_statistics(args, row, layout.thread, (moments.x + pivot) / kScale, equal ? rstd : rstd * kScale);
  return {moments.x, rstd};
}

// Budget: 136 registers, 128 bytes shared.
template <class T, int kThreads, int kWidth, bool kKeep>
__global__ void __launch_bounds__(kThreadsPerBlock<kThreads>)
    forward_kernel(ResidualLayerNormForward<T> args) {
  const int64_t row = int64_t{blockIdx.x} * kGroupsPerBlock<kThreads> + threadIdx.x / kThreads;
  if (row >= args.rows) return;
  const RowLayout<kThreads, kWidth, kKeep> layout(args.cols, threadIdx.x % kThreads);
  const int64_t start = row * args.cols;
  RowPart<T, kThreads, kWidth, kKeep> x(layout, args.x + start);
  if (args.residual != nullptr)
    x.transform(layout, args.sum + start, [&](float(&v)[kWidth], auto col) {
      float residual[kWidth];
      load(residual, args.residual + start + col);
      apply_dropout(v, args.dropout, start + col);
      for (int j = 0; j < kWidth; ++j) v[j] = T(v[j] + residual[j]);  // as it is stored
      store(args.sum + start + col, v);
    });
  const float2 moments = find_moments<kThreads>(layout, x);
  float mean = moments.x, rstd = 1.0f / sqrtf(moments.y + static_cast<float>(args.eps));
  if (rstd > 0.0f) {
    write_statistics(args, row, layout.thread, mean, rstd);
  } else {
    const float2 mapped = map_row(args, row, layout, x);
    mean = mapped.x;
    rstd = mapped.y;
  }

  T* y = args.y + start;
  layout.each([&](int piece, auto col) {
    float v[kWidth], weight[kWidth], bias[kWidth];
    x.read(v, piece, col);
    load_or(weight, args.weight, col, 1.0f);
    load_or(bias, args.bias, col, 0.0f);
    for (int j = 0; j < kWidth; ++j) v[j] = (v[j] - mean) * rstd * weight[j] + bias[j];
    store(y + col, v);
  });
}

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

// A thread's share of the sums over rows, [gweight, gbias], in registers.
template <int kPieces, int kWidth>
struct ColumnSums {
  float weight[kPieces][kWidth] = {};
  float bias[kPieces][kWidth] = {};
};

// One row: its gradient (g - mean(g) - n mean(g n)) rstd, with g = gy * weight and n the normalised x, and
// what it adds to the sums over rows. x and gy are read once if kKeep.
template <int kThreads, int kWidth, bool kKeep, class T, class Sums>
__device__ __forceinline__ void backward_row(const ResidualLayerNormBackward<T>& args, int64_t row,
                                             const RowLayout<kThreads, kWidth, kKeep>& layout,
                                             Sums& columns) {
  const int64_t start = row * args.cols;
  RowPart<T, kThreads, kWidth, kKeep> x_part(layout, args.sum + start);
  const RowPart<T, kThreads, kWidth, kKeep> gy_part(layout, args.gy + start);
  const float cols = static_cast<float>(args.cols);
  const float rstd = args.rstd[row];
  float mean = args.mean[row], inverse = rstd;
  if (is_mapped(rstd)) {
    x_part.map(layout, rstd, mean * rstd);
    mean = 0.0f;
    inverse = 1.0f;
  }

  float2 sums{0.0f, 0.0f};
  layout.each([&](int piece, auto col) {
    float x[kWidth], gy[kWidth], weight[kWidth];
    x_part.read(x, piece, col);
    gy_part.read(gy, piece, col);
    load_or(weight, args.weight, col, 1.0f);
    for (int j = 0; j < kWidth; ++j) {
      const float n = (x[j] - mean) * inverse, g = gy[j] * weight[j];
      sums.x += g;
      sums.y += g * n;
      if constexpr (kKeep) {
        columns.weight[piece][j] += gy[j] * n;
        columns.bias[piece][j] += gy[j];
      }
    }
  });
  if (args.gx == nullptr && args.gresidual == nullptr) return;
  sums = group_sum<kThreads>(sums);
  const float mean_g = sums.x / cols, mean_gn = sums.y / cols;
  layout.each([&](int piece, auto col) {
    float x[kWidth], gy[kWidth], weight[kWidth], out[kWidth];
    x_part.read(x, piece, col);
    gy_part.read(gy, piece, col);
    load_or(weight, args.weight, col, 1.0f);
    load_or(out, args.gsum, start + col, 0.0f);
    for (int j = 0; j < kWidth; ++j) {
      const float n = (x[j] - mean) * inverse, g = gy[j] * weight[j];
      out[j] += (g - mean_g - n * mean_gn) * rstd;
    }
    if (args.gresidual != nullptr) add_to(args.gresidual + start + col, args.accumulate_residual, out);
    if (args.gx == nullptr) return;
    apply_dropout(out, args.dropout, start + col);
    add_to(args.gx + start + col, args.accumulate_x, out);
  });
}

// Bytes in which the groups of a block add up their column sums.
template <int kThreads>
size_t column_sum_bytes(int64_t cols) {
  if (kGroupsPerBlock<kThreads> == 1) return 0;
  return simt::SharedLayout()
      .add<float>(static_cast<size_t>(cols))
      .template add<float>(static_cast<size_t>(cols))
      .bytes;
}

// Writes a block's column sums as its partials: [0, cols) of `to_weight` and `to_bias`.
template <int kThreads, int kWidth, class Sums>
__device__ __forceinline__ void write_partials(float* to_weight, float* to_bias,
                                               const RowLayout<kThreads, kWidth, true>& layout,
                                               const Sums& columns) {
  if constexpr (kGroupsPerBlock<kThreads> == 1) {
    layout.each([&](int piece, int col) {
      store(to_weight + col, columns.weight[piece]);
      store(to_bias + col, columns.bias[piece]);
    });
    return;
  }
  // The groups add theirs in order.
  simt::Arena<> arena;
  float* weight = arena.take<float>(static_cast<size_t>(layout.cols));
  float* bias = arena.take<float>(static_cast<size_t>(layout.cols));
  for (int group = 0; group < kGroupsPerBlock<kThreads>; ++group) {
    if (static_cast<int>(threadIdx.x) / kThreads == group)
      layout.each([&](int piece, int col) {
        for (int j = 0; j < kWidth; ++j) {
          weight[col + j] = columns.weight[piece][j] + (group > 0 ? weight[col + j] : 0.0f);
          bias[col + j] = columns.bias[piece][j] + (group > 0 ? bias[col + j] : 0.0f);
        }
      });
    __syncthreads();
  }
  for (int col = threadIdx.x; col < layout.cols; col += kThreadsPerBlock<kThreads>) {
    to_weight[col] = weight[col];
    to_bias[col] = bias[col];
  }
}

// partials: [gweight, gbias][blocks][cols], or null if neither is wanted or the row is too long to be kept.
// Budget: 250 registers, 128 bytes shared.
template <class T, int kThreads, int kWidth, bool kKeep>
__global__ void __launch_bounds__(kThreadsPerBlock<kThreads>)
    backward_kernel(ResidualLayerNormBackward<T> args, float* partials) {
  using Layout = RowLayout<kThreads, kWidth, kKeep>;
  const Layout layout(args.cols, threadIdx.x % kThreads);
  ColumnSums<Layout::kPieces, kWidth> columns;
  const int64_t groups = int64_t{gridDim.x} * kGroupsPerBlock<kThreads>;
  for (int64_t row = int64_t{blockIdx.x} * kGroupsPerBlock<kThreads> + threadIdx.x / kThreads;
       row < args.rows; row += groups)
    backward_row<kThreads, kWidth, kKeep>(args, row, layout, columns);
  if constexpr (kKeep)
    if (partials != nullptr)
      write_partials(partials + int64_t{blockIdx.x} * args.cols,
                     partials + (int64_t{gridDim.x} + blockIdx.x) * args.cols, layout, columns);
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
void normalize_rows(const char* what, const ResidualLayerNormForward<T>& args) {
  if (args.rows == 0) return;
  with_row_layout<T>(
      args.cols, vectorizable<T>(args.cols, args.residual, args.x, args.weight, args.bias, args.sum, args.y),
      [&]<int kThreads, int kWidth, bool kKeep>() {
        launch(what, forward_kernel<T, kThreads, kWidth, kKeep>, blocks_of_rows<kThreads>(args.rows),
               dim3(kThreadsPerBlock<kThreads>), 0, args);
      });
}

template <class T>
void normalize_rows_backward(const char* what, const ResidualLayerNormBackward<T>& args) {
  if (args.rows == 0) return clear_sums(what, args);
  const bool wants_sums = args.gweight != nullptr || args.gbias != nullptr;
  with_row_layout<T>(
      args.cols,
      vectorizable<T>(args.cols, args.gy, args.gsum, args.sum, args.weight, args.gresidual, args.gx),
      [&]<int kThreads, int kWidth, bool kKeep>() {
        const int64_t groups = kGroupsPerBlock<kThreads>;
        const int64_t blocks = std::min(simt::ceil_div<int64_t>(args.rows, groups), kMaxBlocks);
        const int64_t splits =
            kKeep ? blocks : std::min<int64_t>(simt::ceil_div<int64_t>(args.rows, kColumnRows), 64);
        const size_t cols = static_cast<size_t>(args.cols);
        const Scratch scratch(wants_sums ? 2 * static_cast<size_t>(splits) * cols * sizeof(float) : 0);
        float* partials = wants_sums ? scratch.as<float>() : nullptr;
        if (args.gx != nullptr || args.gresidual != nullptr || (kKeep && wants_sums))
          launch(what, backward_kernel<T, kThreads, kWidth, kKeep>, dim3(static_cast<unsigned>(blocks)),
                 dim3(kThreadsPerBlock<kThreads>),
                 kKeep && wants_sums ? column_sum_bytes<kThreads>(args.cols) : 0, args, partials);
        if (!wants_sums) return;
        if (!kKeep)
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

#define HEED_INSTANTIATE(T)                                                         \
  template void normalize_rows<T>(const char*, const ResidualLayerNormForward<T>&); \
  template void normalize_rows_backward<T>(const char*, const ResidualLayerNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
