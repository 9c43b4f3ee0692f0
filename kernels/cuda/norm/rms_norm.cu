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
template <class Group, class T, class Layout>
__device__ __forceinline__ float mean_square(const Layout& layout, const RowPart<T, Layout>& x, float scale,
                                             int turn) {
  constexpr int kWidth = Layout::kWidth;
  float squares = 0.0f;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) squares += (v[j] * scale) * (v[j] * scale);
  });
  return Group::sum(squares, turn) / static_cast<float>(layout.cols);
}

// Budget: 80 registers, 128 bytes shared.
template <class T, class Layout>
__global__ void __launch_bounds__(RowGroup<Layout>::kBlock) rms_forward_kernel(RMSNormForward<T> args) {
  using Group = RowGroup<Layout>;
  constexpr int kWidth = Layout::kWidth;
  const int64_t row = Group::first_row();
  if (row >= args.rows) return;
  const Layout layout(args.cols, Group::thread());
  const int64_t start = row * args.cols;
  const bool adds = args.residual != nullptr;
  RowPart<T, Layout> x((adds ? args.sum : args.x) + start);
  if (Layout::kKeep || adds)
    x.fill(layout, [&](auto& v, int, auto col) {
      load(v, args.x + start + col);
      if (!adds) return;
      float residual[kWidth];
      load(residual, args.residual + start + col);
      apply_dropout(v, args.dropout, start + col);
      for (int j = 0; j < kWidth; ++j) v[j] += residual[j];
      T stored[kWidth];
      narrow(stored, v);
      store_raw(args.sum + start + col, stored);
      widen(v, stored);
    });
  const float eps = static_cast<float>(args.eps);
  float scale = 1.0f, rstd = 1.0f / sqrtf(mean_square<Group>(layout, x, scale, 0) + eps);
  if (!(rstd > 0.0f)) {  // the squares overflow
    scale = 0x1p-96f;
    rstd = 1.0f / sqrtf(mean_square<Group>(layout, x, scale, 1) + eps * scale * scale);
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
template <class Group, class T, class Layout>
__device__ __forceinline__ void backward_row(const RMSNormBackward<T>& args, int64_t row,
                                             const Layout& layout, int turn,
                                             [[maybe_unused]] Pieces<Layout>& sums) {
  constexpr int kWidth = Layout::kWidth;
  const int64_t start = row * args.cols;
  const RowPart<T, Layout> x_part(layout, args.sum + start), gy_part(layout, args.gy + start);
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
      if constexpr (Layout::kKeep) sums.value[piece][j] += gn;
    }
  });
  if (args.gx == nullptr && args.gresidual == nullptr) return;
  const float slope = Group::sum(product, turn) / static_cast<float>(args.cols);
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
template <class Group, class Layout>
__device__ __forceinline__ void write_partials(float* to, const Layout& layout, const Pieces<Layout>& sums) {
  if constexpr (Group::kGroups == 1) {
    layout.each([&](int piece, int col) { store(to + col, sums.value[piece]); });
  } else {
    simt::Arena<> arena;
    float* total = arena.take<float>(static_cast<size_t>(layout.cols));
    for (int group = 0; group < Group::kGroups; ++group) {
      if (Group::index() == group)
        layout.each([&](int piece, int col) {
          for (int j = 0; j < Layout::kWidth; ++j)
            total[col + j] = sums.value[piece][j] + (group > 0 ? total[col + j] : 0.0f);
        });
      __syncthreads();
    }
    for (int col = threadIdx.x; col < layout.cols; col += Group::kBlock) to[col] = total[col];
  }
}

// partials: [blocks, cols], or null if gweight is not wanted or the row is too long to be kept.
// Budget: 120 registers, 128 bytes shared.
template <class T, class Layout>
__global__ void __launch_bounds__(RowGroup<Layout>::kBlock, 1)
    rms_backward_kernel(RMSNormBackward<T> args, float* partials) {
  using Group = RowGroup<Layout>;
  const Layout layout(args.cols, Group::thread());
  Pieces<Layout> sums{};
  int64_t row = Group::first_row();
  for (int turn = 0; row < args.rows; row += Group::row_step(), turn ^= 1)
    backward_row<Group>(args, row, layout, turn, sums);
  if constexpr (Layout::kKeep)
    if (partials != nullptr) write_partials<Group>(partials + int64_t{blockIdx.x} * args.cols, layout, sums);
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
  with_row_layout<T, 32, 32, 256>(
      args.cols, vectorizable<T>(args.cols, args.residual, args.x, args.weight, args.sum, args.y),
      [&]<class Layout>() {
        using Group = RowGroup<Layout>;
        launch("rms_norm_forward", rms_forward_kernel<T, Layout>, blocks_of_rows<Group>(args.rows),
               dim3(Group::kBlock), 0, args);
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
  with_row_layout<T, 32, 16, 256>(
      args.cols,
      vectorizable<T>(args.cols, args.gy, args.gsum, args.sum, args.weight, args.gresidual, args.gx),
      [&]<class Layout>() {
        constexpr bool kKeep = Layout::kKeep;
        constexpr int64_t groups = RowGroup<Layout>::kGroups;
        const int64_t blocks = std::min(simt::ceil_div<int64_t>(args.rows, groups), kMaxBlocks);
        const int64_t splits =
            kKeep ? blocks : std::min<int64_t>(simt::ceil_div<int64_t>(args.rows, kColumnRows), 64);
        const Scratch scratch(wants_sums ? static_cast<size_t>(splits) * cols * sizeof(float) : 0);
        float* partials = wants_sums ? scratch.as<float>() : nullptr;
        const bool adds_groups = kKeep && wants_sums && groups > 1;
        if (args.gx != nullptr || args.gresidual != nullptr || (kKeep && wants_sums))
          launch(kWhat, rms_backward_kernel<T, Layout>, dim3(static_cast<unsigned>(blocks)),
                 dim3(RowGroup<Layout>::kBlock),
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
