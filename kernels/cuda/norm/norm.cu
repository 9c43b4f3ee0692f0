// Layer norm and RMS norm, of a tensor or of what is added to a residual. An RMS norm is a layer norm whose
// mean is 0. The backward is in norm_backward.cu.
#include <algorithm>

#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/norm/row_stream.cuh>
#include <heed/kernels/norm.h>

namespace heed::cuda {
namespace {

using kernels::NormForward;

// What the kernel is given. Of arguments of more than 128 bytes the compiler keeps the fields less well
// apart: it would take more registers, and spill some.
template <class T>
struct ForwardRows {
  const T *residual, *x, *weight, *bias;
  Dropout dropout;
  T *sum, *y;
  float *mean, *rstd;
  bool* invertible;
  int64_t rows, cols;
  float eps;
  bool post;

  explicit ForwardRows(const NormForward<T>& args)
      : residual(args.residual),
        x(args.x),
        weight(args.weight),
        bias(args.bias),
        dropout(args.dropout),
        sum(args.sum),
        y(args.y),
        mean(args.mean),
        rstd(args.rstd),
        invertible(args.invertible),
        rows(args.rows),
        cols(args.cols),
        eps(static_cast<float>(args.eps)),
        post(args.post) {}
};

// Whether a block goes over many rows, the next ones on their way. It pays where there is much to do for each
// element or several rows share a warp; else a row a group is faster.
template <class Layout, bool kResidual>
constexpr bool kManyRows = kResidual || Layout::kThreads < 32;

template <class T, class Layout, bool kResidual>
using ForwardStream = RowStream<T, Layout, RowGroup<Layout>, kResidual ? 2 : 1, kManyRows<Layout, kResidual>>;

// Threads of a multiprocessor, by the registers that each needs, and its blocks.
template <class T, class Layout, bool kResidual>
constexpr int kForwardThreads = !Layout::kKeep || Layout::kWidth == 1    ? 512
                                : Layout::kPieces * Layout::kWidth <= 16 ? 1024
                                : kResidual && std::is_same_v<T, float>  ? 512
                                                                         : 768;
template <class T, class Layout, bool kResidual>
constexpr int kForwardBlocks = std::max(1, kForwardThreads<T, Layout, kResidual> / RowGroup<Layout>::kBlock);

// Whether the normalised row can be found again from y with little loss: no bias is more than 4 times as
// large as its weight, and weights are far from what overflows. All threads of a block call it.
template <class T, class Layout>
__device__ __forceinline__ bool is_invertible(const ForwardRows<T>& args, const Layout& layout) {
  bool all = true;
  layout.each([&](int, auto col) {
    float weight[Layout::kWidth], bias[Layout::kWidth];
    load_or(weight, args.weight, col, 1.0f);
    load_or(bias, args.bias, col, 0.0f);
    for (int j = 0; j < Layout::kWidth; ++j) {
      const float size = fabsf(weight[j]);
      all = all && size > 0x1p-64f && size < 0x1p64f && fabsf(bias[j]) <= 4.0f * size;
    }
  });
  return __syncthreads_and(all);
}

// Whether a block writes the sums of its rows, where this kernel does not read them again. In shared memory,
// as registers are scarce.
struct SumWritten {
  bool value;
};

template <class Layout>
__device__ __forceinline__ bool writes_sum() {
  return !Layout::kKeep || simt::shared<SumWritten>().value;
}

// Decides that, and tells the backward. All threads of a block call it.
template <class T, class Layout>
__device__ __forceinline__ void decide_on_sum(const ForwardRows<T>& args, const Layout& layout) {
  bool written = true;
  if constexpr (Layout::kKeep) {
    if (args.post) written = args.invertible != nullptr && !is_invertible(args, layout);
    if (threadIdx.x == 0) simt::shared<SumWritten>().value = written;
    __syncthreads();
  }
  if (blockIdx.x == 0 && threadIdx.x == 0 && args.invertible != nullptr) *args.invertible = !written;
}

// The mean, Σ x / cols, and Σ (x - mean)² / cols; `share` is 1 / cols. `turn` is 0 and 1 by turns from row to
// row.
template <NormKind kKind, class Group, class T, class Layout>
__device__ __forceinline__ float2 find_moments(const Layout& layout, const RowPart<T, Layout>& x, float share,
                                               int turn) {
  constexpr int kWidth = Layout::kWidth;
  const float cols = static_cast<float>(layout.cols);
  float mean = 0.0f;
  if constexpr (kKind == NormKind::layer) {
    float sum = 0.0f;
    layout.each([&](int piece, auto col) {
      float v[kWidth];
      x.read(v, piece, col);
      for (int j = 0; j < kWidth; ++j) sum += v[j];
    });
    mean = divide(Group::sum(sum, 0), cols, share);
    turn = 1;
  }
  float squares = 0.0f;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) squares += (v[j] - mean) * (v[j] - mean);
  });
  return {mean, divide(Group::sum(squares, turn), cols, share)};
}

// A row's mean and rstd, as they are read and as they are told.
struct Statistics {
  float mean, rstd, told_mean, told_rstd;
};

// If a sum of the row overflows, x is mapped from now on, that is scaled and, for a layer norm, taken from
// the row's first element, from which elements that are all equal do not differ. Other ones differ by so much
// then that eps is nothing to them. Groups of one warp come here together; a sound row stays as it is, and so
// does one beyond the last, all zeros.
template <NormKind kKind, class Group, class T, class Layout>
__device__ __forceinline__ Statistics map_row(const Layout& layout, RowPart<T, Layout>& x, float eps,
                                              float share, int turn, const Statistics& found) {
  constexpr float kScale = 0x1p-96f;
  const bool overflows = !(found.rstd > 0.0f);
  float pivot = 0.0f;
  if constexpr (kKind == NormKind::layer) {
    float first[Layout::kWidth] = {};
    if (layout.thread == 0) x.read(first, 0, 0);
    pivot = Group::sum(overflows ? first[0] * kScale : 0.0f);
  }
  Group::sync();
  x.map(layout, overflows ? kScale : 1.0f, pivot);
  const float2 moments = find_moments<kKind, Group>(layout, x, share, turn);
  if (!overflows) return found;
  const bool equal = moments.y == 0.0f;
  const float rstd = 1.0f / sqrtf(equal ? eps : moments.y);
  return {moments.x, rstd, (moments.x + pivot) / kScale, equal ? rstd : rstd * kScale};
}

template <NormKind kKind, class Group, class T, class Layout>
__device__ __forceinline__ Statistics find_statistics(const Layout& layout, RowPart<T, Layout>& x, float eps,
                                                      float share, int turn) {
  const float2 moments = find_moments<kKind, Group>(layout, x, share, turn);
  const float rstd = rsqrtf(moments.y + eps);
  const Statistics found{moments.x, rstd, moments.x, rstd};
  const bool sound = rstd > 0.0f;
  if (Group::kThreads < 32 ? __all_sync(0xffffffffu, sound) : sound) return found;
  return map_row<kKind, Group>(layout, x, eps, share, turn, found);
}

// Budget: 128 registers, 272 bytes shared, 8 bytes stack.
template <class T, class Layout, NormKind kKind, bool kResidual>
__global__ void __launch_bounds__(RowGroup<Layout>::kBlock, kForwardBlocks<T, Layout, kResidual>)
    forward_kernel(simt::Dependent<ForwardRows<T>> arguments) {
  const ForwardRows<T>& args = arguments.wait();
  using Group = RowGroup<Layout>;
  constexpr int kWidth = Layout::kWidth;
  const Layout layout(args.cols, Group::thread());
  const float share = simt::rcp_approx(static_cast<float>(layout.cols));
  ForwardStream<T, Layout, kResidual> stream(layout, args.rows, args.x, args.residual);
  if constexpr (kResidual) decide_on_sum(args, layout);
  int64_t row = Group::first_row();
  for (int turn = 0; Group::warp_has_row(row, args.rows); row += Group::row_step(), turn ^= 1) {
    const bool exists = Group::kThreads >= 32 || row < args.rows;
    const int64_t start = row * args.cols;
    RowPart<T, Layout> x(kResidual ? args.sum + start : args.x + start);
    stream.wait();
    if constexpr (kResidual)
      x.fill(layout, [&](auto& v, int piece, auto col) {  // dropout(x) + residual, as it is stored
        if (!exists) return;
        float residual[kWidth];
        stream.read(v, 0, row, turn, piece, col);
        stream.read(residual, 1, row, turn, piece, col);
        apply_dropout(v, args.dropout, start + col);
        for (int j = 0; j < kWidth; ++j) v[j] += residual[j];
        T stored[kWidth];
        narrow(stored, v);
        if (writes_sum<Layout>()) store_raw(args.sum + start + col, stored);
        widen(v, stored);
      });
    else if constexpr (Layout::kKeep)
      x.fill(layout, [&](auto& v, int piece, auto col) {
        if (exists) stream.read(v, 0, row, turn, piece, col);
      });
    stream.release(row, turn);
    const Statistics found = find_statistics<kKind, Group>(layout, x, args.eps, share, turn);
    if (!exists) continue;
    if (layout.thread == 0 && args.rstd != nullptr) {
      if constexpr (kKind == NormKind::layer) args.mean[row] = found.told_mean;
      args.rstd[row] = found.told_rstd;
    }
    layout.each([&](int piece, auto col) {
      float v[kWidth], weight[kWidth], bias[kWidth];
      x.read(v, piece, col);
      load_or(weight, args.weight, col, 1.0f);
      load_or(bias, kKind == NormKind::layer ? args.bias : nullptr, col, 0.0f);
      for (int j = 0; j < kWidth; ++j) v[j] = (v[j] - found.mean) * found.rstd * weight[j] + bias[j];
      store(args.y + start + col, v);
    });
  }
}

}  // namespace

template <class T>
void norm_forward(const NormForward<T>& args) {
  if (args.rows == 0) return;
  const auto run = [&]<class Layout, NormKind kKind, bool kResidual>() {
    using Group = RowGroup<Layout>;
    const dim3 grid = kManyRows<Layout, kResidual>
                          ? blocks_over_rows<Group>(args.rows, kForwardBlocks<T, Layout, kResidual>)
                          : blocks_of_rows<Group>(args.rows);
    launch(args.name(), forward_kernel<T, Layout, kKind, kResidual>, grid, dim3(Group::kBlock),
           ForwardStream<T, Layout, kResidual>::kBytes, ForwardRows<T>(args));
  };
  const auto of_kind = [&]<class Layout, NormKind kKind>() {
    args.residual == nullptr ? run.template operator()<Layout, kKind, false>()
                             : run.template operator()<Layout, kKind, true>();
  };
  with_row_layout<T, 8, 32>(
      args.cols, vectorizable<T>(args.cols, args.residual, args.x, args.weight, args.bias, args.sum, args.y),
      [&]<class Layout>() {
        args.kind == NormKind::layer ? of_kind.template operator()<Layout, NormKind::layer>()
                                     : of_kind.template operator()<Layout, NormKind::rms>();
      });
}

template void norm_forward<float>(const NormForward<float>&);
template void norm_forward<bfloat16>(const NormForward<bfloat16>&);

}  // namespace heed::cuda
