#include <algorithm>

#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/cuda/block_sum.cuh>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/indexing/wrong_index.cuh>
#include <heed/kernels/cuda/last_block.cuh>
#include <heed/kernels/cuda/rows.cuh>

namespace heed::cuda {
namespace {

using kernels::CrossEntropyBackward;
using kernels::CrossEntropyForward;

constexpr int kSumThreads = 256;

template <int kThreads>
__device__ __forceinline__ int64_t count_targets(const int64_t* targets, int64_t ignore, int64_t rows) {
  int64_t count = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) count += targets[row] != ignore;
  return block_sum<kThreads>(count);
}

template <int kThreads>
__device__ __forceinline__ double sum_of_losses(const float* losses, int64_t rows) {
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) sum += losses[row];
  return block_sum<kThreads>(sum);
}

// One block counts, since every row needs the number before it can write its gradient.
// Budget: 32 registers, 128 bytes shared.
__global__ void __launch_bounds__(kSumThreads)
    count_kernel(const int64_t* targets, int64_t ignore, int64_t rows, int64_t* counted) {
  const int64_t count = count_targets<kSumThreads>(targets, ignore, rows);
  if (threadIdx.x == 0) *counted = count;
}

// 1 / counted, or 1.
template <class A, class T>
__device__ __forceinline__ A row_weight(const CrossEntropyForward<T>& args, int64_t counted) {
  return args.mean && counted > 0 ? A(1) / static_cast<A>(counted) : A(1);
}

// Budget: 32 registers, 128 bytes shared.
template <class T>
__global__ void __launch_bounds__(kSumThreads) loss_kernel(CrossEntropyForward<T> args, const float* losses) {
  const double sum = sum_of_losses<kSumThreads>(losses, args.rows);
  if (threadIdx.x == 0) *args.loss = static_cast<float>(sum * row_weight<double>(args, *args.counted));
}

template <class T, class Layout>
__device__ __forceinline__ void fill_row(const Layout& layout, T* row, float value) {
  constexpr int kWidth = Layout::kWidth;
  float v[kWidth];
  for (int j = 0; j < kWidth; ++j) v[j] = value;
  if (row != nullptr) layout.each([&](int, auto col) { store(row + col, v); });
}

// The row, copied to shared memory. Each thread has a part of it to itself, so none waits for another.
template <class Layout, class T>
__device__ __forceinline__ const T* in_shared_memory(const Layout& layout, const T* row) {
  simt::Arena<> arena;
  T* const copy = arena.take<T>(static_cast<size_t>(layout.cols), 16);
  layout.each([&](int, auto col) { simt::cp_async<16>(copy + col, row + col); });
  simt::cp_async_commit();
  simt::cp_async_wait<0>();
  return copy;
}

// A row's loss, not yet weighted, and its gradient; weight_of() is asked for where that is wanted. kPadded:
// the last vector of a row is not full, and its rest counts as -inf. kShared: a row too long for registers is
// read once, to shared memory.
template <bool kPadded, bool kShared, class Layout, class T, class Weight>
__device__ __forceinline__ void take_row(const CrossEntropyForward<T>& args, const IndexGuard& targets,
                                         float* losses, int64_t row, const Weight& weight_of) {
  using Group = RowGroup<Layout>;
  constexpr int kWidth = Layout::kWidth;
  const Layout layout(kPadded ? simt::ceil_div<int64_t>(args.classes, kWidth) * kWidth : args.classes,
                      Group::thread());
  const int64_t target = args.targets[row];
  T* g = args.glogits == nullptr ? nullptr : args.glogits + row * args.row_stride();
  const bool ignored = target == args.ignore;
  if (ignored || !targets.holds(target, row)) {
    const float value = ignored ? 0.0f : kNan;
    fill_row(layout, g, value);
    if (layout.thread == 0) losses[row] = value;
    return;
  }
  const T* logits = args.logits + row * args.row_stride();
  RowPart<T, Layout> x(layout, kShared ? in_shared_memory(layout, logits) : logits);
  const auto fill_rest = [&](float(&v)[Layout::kWidth], auto col, float value) {
    if constexpr (kPadded)
      if (col + kWidth > args.classes)
        for (int j = 0; j < kWidth; ++j)
          if (col + j >= args.classes) v[j] = value;
  };
  float most = -kInfinity;
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    fill_rest(v, col, -kInfinity);
    for (int j = 0; j < kWidth; ++j) most = fmaxf(most, v[j]);
  });
  most = Group::max(most);
  float2 sums{0.0f, 0.0f};  // Σ exp(x - most), Σ (x - most)
  layout.each([&](int piece, auto col) {
    float v[kWidth], term[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) {
      v[j] -= most;
      term[j] = simt::exp2_approx(v[j] * kLog2OfE);
    }
    fill_rest(v, col, 0.0f);
    fill_rest(term, col, 0.0f);
    for (int j = 0; j < kWidth; ++j) {
      sums.x += term[j];
      sums.y += v[j];
      if constexpr (Layout::kKeep) x.kept().value[piece][j] = term[j];
    }
  });
  sums = Group::sum(sums);

  const float smoothing = static_cast<float>(args.label_smoothing);
  const float uniform = smoothing / static_cast<float>(args.classes);
  if (layout.thread == 0) {
    const float own = static_cast<float>(logits[target]) - most;
    const float loss = logf(sums.x) - (1.0f - smoothing) * own;
    losses[row] = smoothing == 0.0f ? loss : loss - uniform * sums.y;
  }
  if (g == nullptr) return;
  const float weight = weight_of(), scale = weight / sums.x;
  const float everywhere = weight * uniform, at_target = weight * (1.0f - smoothing);
  layout.each([&](int piece, auto col) {
    float v[kWidth];
    x.read(v, piece, col);
    for (int j = 0; j < kWidth; ++j) {
      const float term = Layout::kKeep ? v[j] : simt::exp2_approx((v[j] - most) * kLog2OfE);
      v[j] = term * scale - everywhere;
    }
    if (target >= col && target < col + kWidth)
      for (int j = 0; j < kWidth; ++j) v[j] -= col + j == target ? at_target : 0.0f;
    fill_rest(v, col, 0.0f);
    store(g + col, v);
  });
}

// Of rows whose targets have been counted.
// Budget: 88 registers, 768 bytes shared.
template <class T, class Layout, bool kPadded, bool kShared>
__global__ void __launch_bounds__(RowGroup<Layout>::kBlock)
    rows_kernel(CrossEntropyForward<T> args, IndexGuard targets, float* losses) {
  const int64_t row = RowGroup<Layout>::first_row();
  if (row >= args.rows) return;
  take_row<kPadded, kShared, Layout>(args, targets, losses, row,
                                     [&] { return row_weight<float>(args, *args.counted); });
}

constexpr int kSharedThreads = 512;
// What a block may have on every device, less what sums of its warps take.
constexpr size_t kMostShared = 99 * 1024 - 2 * (sizeof(float) + sizeof(float2)) * kSharedThreads / 32;

constexpr int64_t kMaxCounted = 2048;  // targets that each block counts in less time than a launch takes

template <class T>
struct AllRows {
  CrossEntropyForward<T> args;
  IndexGuard targets;
  float* losses;
  unsigned* counter;  // of launch_counter()
};

// Of few short rows: each block counts all targets, and the last one adds up the losses.
// Budget: 88 registers, 1152 bytes shared.
template <class T, class Layout, bool kPadded>
__global__ void __launch_bounds__(RowGroup<Layout>::kBlock)
    all_rows_kernel(simt::Dependent<AllRows<T>> arguments) {
  const AllRows<T>& all = arguments.wait();
  const CrossEntropyForward<T>& args = all.args;
  using Group = RowGroup<Layout>;
  const int64_t row = Group::first_row(),
                counted = count_targets<Group::kBlock>(args.targets, args.ignore, args.rows);
  if (row < args.rows)
    take_row<kPadded, false, Layout>(args, all.targets, all.losses, row,
                                     [&] { return row_weight<float>(args, counted); });
  if (!is_last_block(all.counter)) return;
  const double sum = sum_of_losses<Group::kBlock>(all.losses, args.rows);
  if (threadIdx.x != 0) return;
  *args.loss = static_cast<float>(sum * row_weight<double>(args, counted));
  *args.counted = counted;
}

constexpr int64_t kMaxScalingBlocks = 2048;  // few, since mostly there is nothing to do

template <class T>
struct Scaling {
  T* gx;
  const float* gloss;
};

// gx = gloss * gx, where gloss is not 1.
// Budget: 32 registers, 0 bytes shared.
template <class T, int kWidth>
__global__ void __launch_bounds__(kElementThreads)
    scale_in_place_kernel(simt::Dependent<Scaling<T>> arguments, int64_t count) {
  const Scaling<T>& args = arguments.wait();
  T* const gx = args.gx;
  const float scale = *args.gloss;
  if (scale == 1.0f) return;
  const int64_t threads = int64_t{gridDim.x} * kElementThreads;
  const int64_t vectors = count / kWidth, first = int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  const auto scale_at = [&]<int kElements>(int64_t at) {
    float g[kElements];
    load(g, gx + at);
    for (int j = 0; j < kElements; ++j) g[j] *= scale;
    store(gx + at, g);
  };
  for (int64_t i = first; i < vectors; i += threads) scale_at.template operator()<kWidth>(i * kWidth);
  if (const int64_t at = vectors * kWidth + first; at < count) scale_at.template operator()<1>(at);
}

template <class T>
void scale_in_place(const char* what, T* gx, const float* gloss, int64_t count) {
  const auto run = [&]<int kWidth>() {
    const int64_t blocks = simt::ceil_div<int64_t>(count, kElementThreads * kWidth);
    launch(what, scale_in_place_kernel<T, kWidth>,
           dim3(static_cast<unsigned>(std::min(blocks, kMaxScalingBlocks))), dim3(kElementThreads), 0,
           Scaling<T>{gx, gloss}, count);
  };
  if (count == 0) return;
  if (aligned_for<kVectorWidth<T>>(gx))
    run.template operator()<kVectorWidth<T>>();
  else
    run.template operator()<1>();
}

template <class T>
struct ScaleOp {
  static constexpr int kOperands = 1, kWidth = kVectorWidth<T>;
  CrossEntropyBackward<T> args;

  bool aligned() const { return aligned_for<kWidth>(args.glogits) && aligned_for<kWidth>(args.gx); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[1], unsigned) const {
    float g[kWidth], gx[kWidth] = {};
    load(g, args.glogits + at[0]);
    if (args.accumulate) load(gx, args.gx + at[0]);
    const float gloss = *args.gloss;
    for (int j = 0; j < kWidth; ++j) gx[j] += g[j] * gloss;
    store(args.gx + at[0], gx);
  }
};

}  // namespace

template <class T>
void cross_entropy_forward(const CrossEntropyForward<T>& args) {
  constexpr const char* kWhat = "cross_entropy_forward";
  const Scratch losses(static_cast<size_t>(args.rows) * sizeof(float));
  const bool apart = args.counted_targets != nullptr;
  const auto row_bytes = static_cast<size_t>(simt::ceil_div<int64_t>(args.classes, kVectorWidth<T>) * 16);
  const auto count = [&] {
    launch(kWhat, count_kernel, dim3(1), dim3(kSumThreads), 0, apart ? args.counted_targets : args.targets,
           args.ignore, apart ? args.counted_rows : args.rows, args.counted);
  };
  const auto add_up = [&] {
    launch(kWhat, loss_kernel<T>, dim3(1), dim3(kSumThreads), 0, args, losses.as<float>());
  };
  if (args.rows == 0) return count(), add_up();
  const auto run_padded = [&]<class Layout, bool kPadded, bool kShared>() {
    using Group = RowGroup<Layout>;
    const dim3 grid = blocks_of_rows<Group>(args.rows), block(Group::kBlock);
    const IndexGuard targets(kernels::IndexUse::cross_entropy_target, args.classes);
    if constexpr (Layout::kThreads == 32)
      if (!apart && args.rows <= kMaxCounted)
        return launch(kWhat, all_rows_kernel<T, Layout, kPadded>, grid, block, 0,
                      AllRows<T>{args, targets, losses.as<float>(), launch_counter()});
    count();
    launch(kWhat, rows_kernel<T, Layout, kPadded, kShared>, grid, block, kShared ? row_bytes : 0, args,
           targets, losses.as<float>());
    add_up();
  };
  const auto run = [&]<class Layout, bool kShared>() {
    args.classes % Layout::kWidth == 0 ? run_padded.template operator()<Layout, false, kShared>()
                                       : run_padded.template operator()<Layout, true, kShared>();
  };
  with_row_layout<T, 32, 32>(args.classes, vectorizable<T>(args.row_stride(), args.logits, args.glogits),
                             [&]<class Layout>() {
                               if constexpr (!Layout::kKeep && Layout::kWidth > 1)
                                 if (row_bytes <= kMostShared) {
                                   using Shared = RowLayout<kSharedThreads, Layout::kWidth, 0, false>;
                                   return run.template operator()<Shared, true>();
                                 }
                               run.template operator()<Layout, false>();
                             });
}

template <class T>
void cross_entropy_backward(const CrossEntropyBackward<T>& args) {
  constexpr const char* kWhat = "cross_entropy_backward";
  if (args.gx == args.glogits && !args.accumulate)
    return scale_in_place(kWhat, args.gx, args.gloss, args.count);
  elementwise(kWhat, ScaleOp<T>{args}, single_run<1>(args.count));
}

#define HEED_INSTANTIATE(T)                                              \
  template void cross_entropy_forward<T>(const CrossEntropyForward<T>&); \
  template void cross_entropy_backward<T>(const CrossEntropyBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
