// Root mean square normalisation, of a tensor or of what is added to a residual.
#include <algorithm>

#include <heed/kernels/cuda/column_sums.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/rows.cuh>
#include <heed/kernels/rms_norm.h>

namespace heed::cuda {
namespace {

using kernels::RMSNormBackward;
using kernels::RMSNormForward;

// Blocks of the backward: a constant, so that the bits depend on the shape and not on the device.
constexpr int64_t kMaxBlocks = 256;

// Σ (x * scale)² / cols.
template <int kThreads, class T, int kWidth, bool kKeep>
__device__ __forceinline__ float mean_square(const RowLayout<kThreads, kWidth, kKeep>& layout,
                                             const RowPart<T, kThreads, kWidth, kKeep>& x, float scale) {
  float squares = 0.0f;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) squares += (v[j] * scale) * (v[j] * scale);
  });
  return group_sum<kThreads>(squares) / static_cast<float>(layout.cols);
}

// Budget: 160 registers, 128 bytes shared.
template <class T, int kThreads, int kWidth, bool kKeep>
__global__ void __launch_bounds__(kThreadsPerBlock<kThreads>) rms_forward_kernel(RMSNormForward<T> args) {
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
  const float eps = static_cast<float>(args.eps);
  float scale = 1.0f, rstd = 1.0f / sqrtf(mean_square<kThreads>(layout, x, scale) + eps);
  if (!(rstd > 0.0f)) {  // the squares overflow
    const RowLayout<kThreads, kWidth, false> again(args.cols, layout.thread);
    const T* const from = args.residual == nullptr ? args.x : args.sum;
    const RowPart<T, kThreads, kWidth, false> row_again(again, from + start);
    scale = 0x1p-96f;
    rstd = 1.0f / sqrtf(mean_square<kThreads>(again, row_again, scale) + eps * scale * scale);
  }
  if (layout.thread == 0 && args.rstd != nullptr) args.rstd[row] = rstd * scale;

  T* y = args.y + start;
  layout.each([&](int piece, auto col) {
    float v[kWidth], weight[kWidth];
    x.read(v, piece, col);
    load_or(weight, args.weight, col, 1.0f);
    for (int j = 0; j < kWidth; ++j) v[j] = v[j] * scale * rstd * weight[j];
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

// One row: its gradient (g - n mean(g n)) rstd, with g = gy * weight and n the normalised x, and what it adds
// to the sums over rows. x and gy are read once if kKeep.
template <int kThreads, int kWidth, bool kKeep, class T, class Sums>
__device__ __forceinline__ void backward_row(const RMSNormBackward<T>& args, int64_t row,
                                             const RowLayout<kThreads, kWidth, kKeep>& layout, Sums& sums) {
  const int64_t start = row * args.cols;
  const RowPart<T, kThreads, kWidth, kKeep> x_part(layout, args.sum + start),
      gy_part(layout, args.gy + start);
  const float rstd = args.rstd[row];
  float product = 0.0f;
  layout.each([&](int piece, auto col) {
    float x[kWidth], gy[kWidth], weight[kWidth];
    x_part.read(x, piece, col);
    gy_part.read(gy, piece, col);
    load_or(weight, args.weight, col, 1.0f);
    for (int j = 0; j < kWidth; ++j) {
      const float gn = gy[j] * (x[j] * rstd);
      product += gn * weight[j];
      if constexpr (kKeep) sums[piece][j] += gn;
    }
  });
  if (args.gx == nullptr && args.gresidual == nullptr) return;
  const float slope = group_sum<kThreads>(product) / static_cast<float>(args.cols);
  layout.each([&](int piece, auto col) {
    float x[kWidth], gy[kWidth], weight[kWidth], out[kWidth];
    x_part.read(x, piece, col);
    gy_part.read(gy, piece, col);
    load_or(weight, args.weight, col, 1.0f);
    load_or(out, args.gsum, start + col, 0.0f);
    for (int j = 0; j < kWidth; ++j) out[j] += (gy[j] * weight[j] - x[j] * rstd * slope) * rstd;
    if (args.gresidual != nullptr) add_to(args.gresidual + start + col, args.accumulate_residual, out);
    if (args.gx == nullptr) return;
    apply_dropout(out, args.dropout, start + col);
    add_to(args.gx + start + col, args.accumulate_x, out);
  });
}

// Writes a block's sums over its rows as its partials, [cols]. The groups of a block add theirs in order.
template <int kThreads, int kWidth, class Sums>
__device__ __forceinline__ void write_partials(float* to, const RowLayout<kThreads, kWidth, true>& layout,
                                               const Sums& sums) {
  if constexpr (kGroupsPerBlock<kThreads> == 1) {
    layout.each([&](int piece, int col) { store(to + col, sums[piece]); });
  } else {
    simt::Arena<> arena;
    float* total = arena.take<float>(static_cast<size_t>(layout.cols));
    for (int group = 0; group < kGroupsPerBlock<kThreads>; ++group) {
      if (static_cast<int>(threadIdx.x) / kThreads == group)
        layout.each([&](int piece, int col) {
          for (int j = 0; j < kWidth; ++j)
            total[col + j] = sums[piece][j] + (group > 0 ? total[col + j] : 0.0f);
        });
      __syncthreads();
    }
    for (int col = threadIdx.x; col < layout.cols; col += kThreadsPerBlock<kThreads>) to[col] = total[col];
  }
}

// partials: [blocks, cols], or null if gweight is not wanted or the row is too long to be kept.
// Budget: 240 registers, 128 bytes shared.
template <class T, int kThreads, int kWidth, bool kKeep>
__global__ void __launch_bounds__(kThreadsPerBlock<kThreads>, kThreads == kWarpThreads ? 2 : 1)
    rms_backward_kernel(RMSNormBackward<T> args, float* partials) {
  using Layout = RowLayout<kThreads, kWidth, kKeep>;
  const Layout layout(args.cols, threadIdx.x % kThreads);
  float sums[Layout::kPieces][kWidth] = {};
  const int64_t groups = int64_t{gridDim.x} * kGroupsPerBlock<kThreads>;
  for (int64_t row = int64_t{blockIdx.x} * kGroupsPerBlock<kThreads> + threadIdx.x / kThreads;
       row < args.rows; row += groups)
    backward_row<kThreads, kWidth, kKeep>(args, row, layout, sums);
  if constexpr (kKeep)
    if (partials != nullptr) write_partials(partials + int64_t{blockIdx.x} * args.cols, layout, sums);
}

constexpr int kColumnTile = 32;  // columns of a block of the next kernel
constexpr int kColumnRows = 8;   // rows it works on at a time

struct ColumnTile {
  float value[kColumnRows][kColumnTile];
};

// The sums over rows where a row is too long to be kept: a block takes kColumnTile columns of every
// gridDim.y-th stretch of kColumnRows rows.
// Budget: 40 registers, 1024 bytes shared.
template <class T>
__global__ void __launch_bounds__(kColumnTile* kColumnRows)
    rms_column_kernel(RMSNormBackward<T> args, float* partials) {
  auto& tile = simt::shared<ColumnTile>();
  const int64_t col = int64_t{blockIdx.x} * kColumnTile + threadIdx.x;
  float sum = 0.0f;
  if (col < args.cols)
    for (int64_t row = int64_t{blockIdx.y} * kColumnRows + threadIdx.y; row < args.rows;
         row += int64_t{gridDim.y} * kColumnRows) {
      const float gy = args.gy[row * args.cols + col], x = args.sum[row * args.cols + col];
      sum += gy * (x * args.rstd[row]);
    }
  tile.value[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= args.cols) return;
  for (int row = 1; row < kColumnRows; ++row) sum += tile.value[row][threadIdx.x];
  partials[int64_t{blockIdx.y} * args.cols + col] = sum;
}

}  // namespace

template <class T>
void rms_norm_forward(const RMSNormForward<T>& args) {
  if (args.rows == 0) return;
  with_row_layout<T>(args.cols,
                     vectorizable<T>(args.cols, args.residual, args.x, args.weight, args.sum, args.y),
                     [&]<int kThreads, int kWidth, bool kKeep>() {
                       launch("rms_norm_forward", rms_forward_kernel<T, kThreads, kWidth, kKeep>,
                              blocks_of_rows<kThreads>(args.rows), dim3(kThreadsPerBlock<kThreads>), 0, args);
                     });
}

template <class T>
void rms_norm_backward(const RMSNormBackward<T>& args) {
  constexpr const char* kWhat = "rms_norm_backward";
  const size_t cols = static_cast<size_t>(args.cols);
  const bool wants_sums = args.gweight != nullptr;
  if (args.rows == 0) {
    if (wants_sums && !args.accumulate_weight)
      check(cudaMemsetAsync(args.gweight, 0, cols * sizeof(float), current_stream()), kWhat);
    return;
  }
  with_row_layout<T>(
      args.cols,
      vectorizable<T>(args.cols, args.gy, args.gsum, args.sum, args.weight, args.gresidual, args.gx),
      [&]<int kThreads, int kWidth, bool kKeep>() {
        const int64_t groups = kGroupsPerBlock<kThreads>;
        const int64_t blocks = std::min(simt::ceil_div<int64_t>(args.rows, groups), kMaxBlocks);
        const int64_t splits =
            kKeep ? blocks : std::min<int64_t>(simt::ceil_div<int64_t>(args.rows, kColumnRows), 64);
        const Scratch scratch(wants_sums ? static_cast<size_t>(splits) * cols * sizeof(float) : 0);
        float* partials = wants_sums ? scratch.as<float>() : nullptr;
        const bool adds_groups = kKeep && wants_sums && groups > 1;
        if (args.gx != nullptr || args.gresidual != nullptr || (kKeep && wants_sums))
          launch(kWhat, rms_backward_kernel<T, kThreads, kWidth, kKeep>, dim3(static_cast<unsigned>(blocks)),
                 dim3(kThreadsPerBlock<kThreads>),
                 adds_groups ? simt::SharedLayout().add<float>(cols).bytes : 0, args, partials);
        if (!wants_sums) return;
        if (!kKeep)
          launch(kWhat, rms_column_kernel<T>,
                 dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(args.cols, kColumnTile)),
                      static_cast<unsigned>(splits)),
                 dim3(kColumnTile, kColumnRows), 0, args, partials);
        add_partials(kWhat, {{partials, args.gweight, args.accumulate_weight}, {}}, splits, args.cols);
      });
}

#define HEED_INSTANTIATE(T)                                    \
  template void rms_norm_forward<T>(const RMSNormForward<T>&); \
  template void rms_norm_backward<T>(const RMSNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
