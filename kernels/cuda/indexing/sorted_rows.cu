#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/indexing/sorted_rows.cuh>
#include <heed/kernels/cuda/vector.cuh>

namespace heed::cuda {
namespace {

constexpr int kSumThreads = 64;
constexpr int64_t kStretch = 64;  // sorted rows that a block adds up

// The rows of one target may reach over several stretches. Those that a stretch has of a target which began
// earlier go to `heads`, those of one that begins in it and goes on to `tails`: [stretches, cols] each.
struct Sorted {
  const int32_t* targets;
  const int32_t* rows;
  float* heads;
  float* tails;

  // Whether the target of sorted row i is also that of the one before it.
  __device__ __forceinline__ bool continues(int64_t i, int64_t count) const {
    return i > 0 && i < count && targets[i] == targets[i - 1];
  }
};

template <class T, int kWidth>
__device__ __forceinline__ void write_sum(const RowSums<T>& args, int64_t target, int64_t col,
                                          const float (&sum)[kWidth]) {
  float* to = args.to + target * args.cols + col;
  float out[kWidth] = {};
  if (args.accumulate) load(out, to);
  for (int j = 0; j < kWidth; ++j) out[j] += args.scale * sum[j];
  store(to, out);
}

// Budget: 40 registers, 0 bytes shared.
template <class T, int kWidth>
__global__ void __launch_bounds__(kSumThreads) sum_kernel(RowSums<T> args, Sorted sorted) {
  const int64_t col = (int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * kWidth;
  if (col >= args.cols) return;
  const int64_t begin = blockIdx.x * kStretch, count = args.rows.rows;
  const int64_t end = begin + kStretch < count ? begin + kStretch : count;
  bool began_earlier = sorted.continues(begin, count);
  float sum[kWidth] = {};
  for (int64_t i = begin; i < end; ++i) {
    const int64_t target = sorted.targets[i], row = sorted.rows[i];
    if (target >= args.rows.targets) return;  // rows without one come last
    float v[kWidth];
    load(v, args.from + row * args.cols + col);
    apply_dropout(v, args.dropout, row * args.cols + col);
    for (int j = 0; j < kWidth; ++j) sum[j] += v[j];
    const bool goes_on = sorted.continues(i + 1, count);
    if (goes_on && i + 1 < end) continue;
    if (began_earlier)
      store(sorted.heads + blockIdx.x * args.cols + col, sum);
    else if (goes_on)
      store(sorted.tails + blockIdx.x * args.cols + col, sum);
    else
      write_sum(args, target, col, sum);
    began_earlier = false;
    for (int j = 0; j < kWidth; ++j) sum[j] = 0.0f;
  }
}

// A target that begins in stretch blockIdx.x and goes on: its tail there and the heads that follow.
// Budget: 32 registers, 0 bytes shared.
template <class T, int kWidth>
__global__ void __launch_bounds__(kSumThreads) join_kernel(RowSums<T> args, Sorted sorted) {
  const int64_t col = (int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * kWidth;
  const int64_t begin = blockIdx.x * kStretch, end = begin + kStretch, count = args.rows.rows;
  if (col >= args.cols || !sorted.continues(end, count)) return;
  const int64_t target = sorted.targets[end - 1];
  if (target >= args.rows.targets) return;
  if (sorted.targets[begin] == target && sorted.continues(begin, count)) return;  // it began earlier
  float sum[kWidth];
  load(sum, sorted.tails + blockIdx.x * args.cols + col);
  for (int64_t stretch = blockIdx.x + 1;
       sorted.continues(stretch * kStretch, count) && sorted.targets[stretch * kStretch] == target;
       ++stretch) {
    float v[kWidth];
    load(v, sorted.heads + stretch * args.cols + col);
    for (int j = 0; j < kWidth; ++j) sum[j] += v[j];
  }
  write_sum(args, target, col, sum);
}

// ---- few targets: each is looked for by blocks of its own, which spares the sort

constexpr int kSearchWarps = 8, kSearchThreads = 32 * kSearchWarps;
constexpr int kAtOnce = 4;  // rows that a lane loads at once
constexpr int64_t kFewTargets = 1024, kFewRows = 4096, kMaxSearched = int64_t{1} << 20;

/// Whether so few ids are read in all that a sort would take longer.
bool are_searched(const RowTargets& rows) {
  return rows.rows > 0 && rows.rows <= kFewRows && rows.targets <= kFewTargets &&
         rows.rows * rows.targets <= kMaxSearched;
}

template <int kWidth>
struct WarpSums {
  float value[kSearchWarps][32 * kWidth];
};

// Block (t, c) sums the rows of target t in 32 * kWidth columns. Of 32 rows each its warps take every
// kSearchWarps-th; their sums are added in order.
// Budget: 64 registers, 4096 bytes shared.
template <class T, int kWidth>
__global__ void __launch_bounds__(kSearchThreads) search_kernel(simt::Dependent<RowSums<T>> arguments) {
  const RowSums<T>& args = arguments.wait();
  auto& sums = simt::shared<WarpSums<kWidth>>();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t target = blockIdx.x, col = (int64_t{blockIdx.y} * 32 + lane) * kWidth;
  const bool inside = col < args.cols;
  float sum[kWidth] = {};
  for (int64_t first = int64_t{warp} * 32; first < args.rows.rows; first += kSearchThreads) {
    const int64_t mine = first + lane;
    const bool counts = mine < args.rows.rows && args.rows.ids[mine] == target && target != args.rows.skip &&
                        (args.rows.gate == nullptr || args.rows.gate[mine] >= 0);
    for (uint32_t left = __ballot_sync(0xffffffffu, counts); left != 0;) {
      int64_t at[kAtOnce];
      float v[kAtOnce][kWidth];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k, left &= left - 1)
        at[k] = left != 0 ? (first + __ffs(static_cast<int>(left)) - 1) * args.cols + col : -1;
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (inside && at[k] >= 0) load(v[k], args.from + at[k]);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (!inside || at[k] < 0) continue;
        apply_dropout(v[k], args.dropout, at[k]);
        for (int j = 0; j < kWidth; ++j) sum[j] += v[k][j];
      }
    }
  }
  for (int j = 0; j < kWidth; ++j) sums.value[warp][lane * kWidth + j] = sum[j];
  __syncthreads();
  if (warp != 0 || !inside) return;
  for (int w = 1; w < kSearchWarps; ++w)
    for (int j = 0; j < kWidth; ++j) sum[j] += sums.value[w][lane * kWidth + j];
  write_sum(args, target, col, sum);
}

}  // namespace

template <class T>
void sum_rows(const char* what, const RowSums<T>& args) {
  const auto fits = [&]<int kWidth>() {
    return args.cols % kWidth == 0 && aligned_for<kWidth>(args.from) && aligned_for<kWidth>(args.to);
  };
  if (are_searched(args.rows)) {
    if (args.cols == 0) return;
    const auto search = [&]<int kWidth>() {
      launch(what, search_kernel<T, kWidth>,
             dim3(static_cast<unsigned>(args.rows.targets),
                  static_cast<unsigned>(simt::ceil_div<int64_t>(args.cols, 32 * kWidth))),
             dim3(kSearchThreads), 0, args);
    };
    // Four elements, of bf16 too: so few rows are read that blocks count for more than long accesses.
    return fits.template operator()<4>() ? search.template operator()<4>() : search.template operator()<1>();
  }
  if (!args.accumulate && args.rows.targets * args.cols > 0)
    check(cudaMemsetAsync(args.to, 0, static_cast<size_t>(args.rows.targets * args.cols) * sizeof(float),
                          current_stream()),
          what);
  const int64_t rows = args.rows.rows;
  if (rows == 0 || args.cols == 0) return;
  const int64_t stretches = simt::ceil_div(rows, kStretch);
  const Scratch numbers(2 * static_cast<size_t>(rows) * sizeof(int32_t));
  const Scratch sums(2 * static_cast<size_t>(stretches * args.cols) * sizeof(float));
  int32_t *targets = numbers.as<int32_t>(), *order = targets + rows;
  sort_rows(what, args.rows, targets, order);
  const Sorted sorted{targets, order, sums.as<float>(), sums.as<float>() + stretches * args.cols};
  const auto run = [&]<int kWidth>() {
    const dim3 grid(static_cast<unsigned>(stretches),
                    static_cast<unsigned>(simt::ceil_div<int64_t>(args.cols, kSumThreads * kWidth)));
    launch(what, sum_kernel<T, kWidth>, grid, dim3(kSumThreads), 0, args, sorted);
    if (stretches > 1) launch(what, join_kernel<T, kWidth>, grid, dim3(kSumThreads), 0, args, sorted);
  };
  constexpr int kWide = kVectorWidth<T>;
  if (fits.template operator()<kWide>())
    run.template operator()<kWide>();
  else
    run.template operator()<1>();
}

template void sum_rows<float>(const char*, const RowSums<float>&);
template void sum_rows<bfloat16>(const char*, const RowSums<bfloat16>&);

}  // namespace heed::cuda
