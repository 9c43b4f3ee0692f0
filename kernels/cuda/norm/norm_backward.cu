// The gradients of layer norm and RMS norm, of a tensor or of what is added to a residual.
#include <algorithm>

#include <heed/core/base/host_device.h>
#include <heed/kernels/cuda/column_sums.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/last_block.cuh>
#include <heed/kernels/cuda/norm/row_stream.cuh>
#include <heed/kernels/norm.h>

namespace heed::cuda {
namespace {

using kernels::NormBackward;

// Few blocks with many rows each, since each leaves partial sums of all columns.
template <class Layout>
using BackwardGroup = RowGroup<Layout, (Layout::kKeep ? 512 : Layout::kThreads)>;
constexpr int kResidentBlocks = 1;  // of a multiprocessor

// Where a row's normalised elements come from: the sum, or the forward's y where it said so.
template <class T>
struct Normalized {
  const T *values, *weight, *bias;
  bool from_y;

  __device__ __forceinline__ explicit Normalized(const NormBackward<T>& args)
      : weight(args.weight), bias(args.bias), from_y(args.invertible != nullptr && *args.invertible) {
    values = from_y ? args.y : args.sum;
  }

  // Whether a row's squares overflow. Then differences of its elements may too, and they are scaled before.
  __device__ __forceinline__ bool maps(float rstd) const { return !from_y && rstd < 0x1p-64f; }

  // Makes them of a row's values from column `col` on.
  template <int kWidth>
  __device__ __forceinline__ void find(float (&v)[kWidth], int64_t col, float mean, float inverse) const {
    if (from_y) {
      float scale[kWidth], shift[kWidth];
      load_or(scale, weight, col, 1.0f);
      load_or(shift, bias, col, 0.0f);
      for (int j = 0; j < kWidth; ++j) v[j] = (v[j] - shift[j]) * simt::rcp_approx(scale[j]);
    } else {
      for (int j = 0; j < kWidth; ++j) v[j] = (v[j] - mean) * inverse;
    }
  }
};

// What is summed over rows: gweight, and for a layer norm gbias.
template <NormKind kKind>
constexpr int kSums = kKind == NormKind::layer ? 2 : 1;
template <NormKind kKind, class Layout>
struct SumPieces {
  Pieces<Layout> of[kSums<kKind>];
};

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

// The gradients of pieces of a row, from what its normalised elements get: adds what comes from elsewhere.
template <int kWidth, class T>
__device__ __forceinline__ void write_gradient(const NormBackward<T>& args, int64_t at, float (&g)[kWidth]) {
  float out[kWidth];
  load_or(out, args.gsum, at, 0.0f);
  for (int j = 0; j < kWidth; ++j) out[j] += g[j];
  if (args.gresidual != nullptr) add_to(args.gresidual + at, args.accumulate_residual, out);
  if (args.gx == nullptr) return;
  apply_dropout(out, args.dropout, at);
  add_to(args.gx + at, args.accumulate_x, out);
}

// One row: its gradient (g - mean(g) - n mean(g n)) rstd, with g = gy * weight and n the normalised x, and
// what it adds to `column_sums`, which only rows that are kept have. An RMS norm has no mean(g).
template <NormKind kKind, class Group, class T, class Layout>
__device__ __forceinline__ void backward_row(const NormBackward<T>& args, const Normalized<T>& normalized,
                                             int64_t row, bool exists, const Layout& layout, float mean,
                                             float rstd, float share, int turn, RowPart<T, Layout>& gy_part,
                                             RowPart<T, Layout>& x_part,
                                             [[maybe_unused]] SumPieces<kKind, Layout>& column_sums) {
  constexpr int kWidth = Layout::kWidth;
  float inverse = rstd;
  if (normalized.maps(rstd)) {
    x_part.map(layout, rstd, mean * rstd);
    mean = 0.0f;
    inverse = 1.0f;
  }
  // Makes g of gy and n of x.
  const auto find = [&](auto& g, auto& n, int piece, auto col) {
    float weight[kWidth];
    load_or(weight, args.weight, col, 1.0f);
    normalized.find(n, col, mean, inverse);
    for (int j = 0; j < kWidth; ++j) {
      if constexpr (Layout::kKeep) {
        column_sums.of[0].value[piece][j] += g[j] * n[j];
        if constexpr (kKind == NormKind::layer) column_sums.of[1].value[piece][j] += g[j];
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
      if constexpr (kKind == NormKind::layer) sums.x += g[j];
      sums.y += g[j] * n[j];
    }
  });
  if (args.gx == nullptr && args.gresidual == nullptr) return;
  if constexpr (kKind == NormKind::layer)
    sums = Group::sum(sums, turn);
  else
    sums.y = Group::sum(sums.y, turn);
  const float cols = static_cast<float>(layout.cols);
  const float mean_g = divide(sums.x, cols, share), mean_gn = divide(sums.y, cols, share);
  if (!exists) return;
  each(false, [&](auto& g, auto& n, auto col) {
    for (int j = 0; j < kWidth; ++j) g[j] = (g[j] - mean_g - n[j] * mean_gn) * rstd;
    write_gradient(args, row * args.cols + col, g);
  });
}

// Bytes in which the warps or groups of a block add up their column sums.
template <NormKind kKind, class Layout>
size_t column_sum_bytes(int64_t cols) {
  constexpr int kParts = BackwardGroup<Layout>::kBlock / std::max(Layout::kThreads, 32);
  return Layout::kKeep && kParts > 1 ? kParts * kSums<kKind> * static_cast<size_t>(cols) * sizeof(float) : 0;
}

// Neighbouring floats in shared memory, at an address aligned for this.
template <int kWidth>
struct alignas(kWidth % 4 == 0 ? 16 : 4) ValuesOf {
  float value[kWidth];
};

// Writes a block's column sums as its partials: [0, cols) of partials + k * stride for sum number k. All
// threads call it.
template <NormKind kKind, class Layout>
__device__ __forceinline__ void write_partials(float* partials, int64_t stride, const Layout& layout,
                                               SumPieces<kKind, Layout>& sums) {
  constexpr int kCount = kSums<kKind>;
  constexpr int kThreads = Layout::kThreads, kBlock = BackwardGroup<Layout>::kBlock;
  constexpr int kPartThreads = kThreads < 32 ? 32 : kThreads;
#pragma unroll
  for (int offset = kThreads; offset < 32; offset *= 2)  // groups of a warp
    for (int k = 0; k < kCount; ++k)
      for (int i = 0; i < Layout::kPieces; ++i)
        for (int j = 0; j < Layout::kWidth; ++j)
          sums.of[k].value[i][j] += __shfl_xor_sync(0xffffffffu, sums.of[k].value[i][j], offset);
  if constexpr (kPartThreads == kBlock) {
    layout.each([&](int piece, int col) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) store(partials + k * stride + col, sums.of[k].value[piece]);
    });
    return;
  }
  simt::Arena<> arena;
  float* const parts = arena.take<float>(static_cast<size_t>(kBlock / kPartThreads * kCount * layout.cols));
  const int part = static_cast<int>(threadIdx.x) / kPartThreads;
  __syncthreads();  // rows were there
  if (static_cast<int>(threadIdx.x) % kPartThreads < kThreads)
    layout.each([&](int piece, int col) {
      using Values = ValuesOf<Layout::kWidth>;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        Values values;
        memcpy(&values, sums.of[k].value[piece], sizeof values);
        reinterpret_cast<Values&>(parts[(kCount * part + k) * layout.cols + col]) = values;
      }
    });
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < kCount * layout.cols; i += kBlock) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < kBlock / kPartThreads; ++p) sum += parts[kCount * p * layout.cols + i];
    (i < layout.cols ? partials + i : partials + stride + i - layout.cols)[0] = sum;
  }
}

constexpr int64_t kMaxFinished = 16384;  // partial sums that one block adds up in less time than a launch

// What is to be made of the blocks' partials; an RMS norm has no gbias.
template <class T>
HEED_HOST_DEVICE ColumnSums sums_of(const NormBackward<T>& args, const float* partials, int64_t blocks) {
  return {{{partials, args.gweight, args.accumulate_weight},
           {partials + blocks * args.cols, args.gbias, args.accumulate_bias}},
          blocks,
          args.cols};
}

template <class T>
struct BackwardWork {
  NormBackward<T> args;
  float* partials;    // [gweight, gbias][blocks][cols]; null if not wanted or the row is too long to be kept
  unsigned* counter;  // of launch_counter(), where the last block is to add them up; else null
};

// Budget: 128 registers, 384 bytes shared.
template <class T, class Layout, NormKind kKind>
__global__ void __launch_bounds__(BackwardGroup<Layout>::kBlock, kResidentBlocks)
    backward_kernel(simt::Dependent<BackwardWork<T>> arguments) {
  const BackwardWork<T>& work = arguments.wait();
  const NormBackward<T>& args = work.args;
  using Group = BackwardGroup<Layout>;
  const Layout layout(args.cols, Group::thread());
  SumPieces<kKind, Layout> sums{};
  const Normalized<T> normalized(args);
  BackwardStream<T, Layout> stream(layout, args.rows, args.gy, normalized.values);
  const float share = simt::rcp_approx(static_cast<float>(layout.cols));
  int64_t row = Group::first_row();
  float2 next{0.0f, 0.0f};  // the mean and rstd of the next row
  const auto look_ahead = [&](int64_t to) {
    if (to < args.rows) next = {kKind == NormKind::layer ? args.mean[to] : 0.0f, args.rstd[to]};
  };
  look_ahead(row);
  for (int turn = 0; Group::warp_has_row(row, args.rows); row += Group::row_step(), turn ^= 1) {
    const bool exists = Group::kThreads >= 32 || row < args.rows;
    RowPart<T, Layout> gy(args.gy + row * args.cols), x(normalized.values + row * args.cols);
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
    backward_row<kKind, Group>(args, normalized, row, exists, layout, statistics.x, statistics.y, share, turn,
                               gy, x, sums);
  }
  if constexpr (Layout::kKeep) {
    if (work.partials == nullptr) return;
    write_partials(work.partials + int64_t{blockIdx.x} * args.cols, int64_t{gridDim.x} * args.cols, layout,
                   sums);
    if (work.counter != nullptr && is_last_block(work.counter))
      add_partials_in_block(sums_of(args, work.partials, gridDim.x));
  }
}

constexpr int kColumnTile = 32;  // columns of a block of the next kernel
constexpr int kColumnRows = 8;   // rows it works on at a time

template <NormKind kKind>
struct ColumnTile {
  float value[kSums<kKind>][kColumnRows][kColumnTile];
};

// The sums over rows where a row is too long to be kept: a block takes kColumnTile columns of every
// gridDim.y-th stretch of kColumnRows rows.
// Budget: 40 registers, 2048 bytes shared.
template <class T, NormKind kKind>
__global__ void __launch_bounds__(kColumnTile* kColumnRows)
    column_kernel(NormBackward<T> args, float* partials) {
  auto& tile = simt::shared<ColumnTile<kKind>>();
  const int64_t col = int64_t{blockIdx.x} * kColumnTile + threadIdx.x;
  const Normalized<T> normalized(args);
  float sums[kSums<kKind>] = {};
  if (col < args.cols)
    for (int64_t row = int64_t{blockIdx.y} * kColumnRows + threadIdx.y; row < args.rows;
         row += int64_t{gridDim.y} * kColumnRows) {
      const float gy = args.gy[row * args.cols + col];
      const float mean = kKind == NormKind::layer ? args.mean[row] : 0.0f, rstd = args.rstd[row];
      float n[] = {static_cast<float>(normalized.values[row * args.cols + col])};
      if (normalized.maps(rstd))
        n[0] = n[0] * rstd - mean * rstd;
      else
        normalized.find(n, col, mean, rstd);
      sums[0] += gy * n[0];
      if constexpr (kKind == NormKind::layer) sums[1] += gy;
    }
#pragma unroll
  for (int k = 0; k < kSums<kKind>; ++k) tile.value[k][threadIdx.y][threadIdx.x] = sums[k];
  __syncthreads();
  if (threadIdx.y != 0 || col >= args.cols) return;
#pragma unroll
  for (int k = 0; k < kSums<kKind>; ++k) {
    for (int row = 1; row < kColumnRows; ++row) sums[k] += tile.value[k][row][threadIdx.x];
    partials[(int64_t{k} * gridDim.y + blockIdx.y) * args.cols + col] = sums[k];
  }
}

// No rows: the sums over them are zero.
template <class T>
void clear_sums(const NormBackward<T>& args) {
  const size_t bytes = static_cast<size_t>(args.cols) * sizeof(float);
  if (args.gweight && !args.accumulate_weight)
    check(cudaMemsetAsync(args.gweight, 0, bytes, current_stream()), args.name());
  if (args.gbias && !args.accumulate_bias)
    check(cudaMemsetAsync(args.gbias, 0, bytes, current_stream()), args.name());
}

template <class T, class Layout, NormKind kKind>
void launch_backward(const NormBackward<T>& args) {
  const char* const what = args.name();
  const bool wants_sums = args.gweight != nullptr || args.gbias != nullptr;
  const dim3 grid = blocks_over_rows<BackwardGroup<Layout>>(args.rows, kResidentBlocks);
  const int64_t splits = Layout::kKeep
                             ? int64_t{grid.x}
                             : std::min<int64_t>(simt::ceil_div<int64_t>(args.rows, kColumnRows), 64);
  const size_t cols = static_cast<size_t>(args.cols);
  const Scratch scratch(wants_sums ? kSums<kKind> * static_cast<size_t>(splits) * cols * sizeof(float) : 0);
  float* partials = wants_sums ? scratch.as<float>() : nullptr;
  const bool finishes = Layout::kKeep && wants_sums && splits * args.cols <= kMaxFinished;
  if (args.gx != nullptr || args.gresidual != nullptr || (Layout::kKeep && wants_sums))
    launch(what, backward_kernel<T, Layout, kKind>, grid, dim3(BackwardGroup<Layout>::kBlock),
           std::max(BackwardStream<T, Layout>::kBytes, column_sum_bytes<kKind, Layout>(args.cols)),
           BackwardWork<T>{args, partials, finishes ? launch_counter() : nullptr});
  if (!wants_sums || finishes) return;
  if (!Layout::kKeep)
    launch(what, column_kernel<T, kKind>,
           dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(args.cols, kColumnTile)),
                static_cast<unsigned>(splits)),
           dim3(kColumnTile, kColumnRows), 0, args, partials);
  add_partials(what, sums_of(args, partials, splits));
}

}  // namespace

template <class T>
void norm_backward(const NormBackward<T>& args) {
  if (args.rows == 0) return clear_sums(args);
  with_row_layout<T, 8, 16, 256>(args.cols,
                                 vectorizable<T>(args.cols, args.gy, args.gsum, args.sum, args.y, args.weight,
                                                 args.bias, args.gresidual, args.gx),
                                 [&]<class Layout>() {
                                   args.kind == NormKind::layer
                                       ? launch_backward<T, Layout, NormKind::layer>(args)
                                       : launch_backward<T, Layout, NormKind::rms>(args);
                                 });
}

template void norm_backward<float>(const NormBackward<float>&);
template void norm_backward<bfloat16>(const NormBackward<bfloat16>&);

}  // namespace heed::cuda
