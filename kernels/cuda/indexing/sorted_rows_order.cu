// The sort of sorted_rows.cuh: by eight bits at a time, the lowest first, each time a stable counting sort.
#include <utility>

#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/indexing/sorted_rows.cuh>
#include <heed/kernels/embedding.h>

namespace heed::cuda {
namespace {

constexpr int kDigits = 256, kThreads = 256, kWarps = kThreads / 32;
constexpr int kRounds = 8;                 // elements of a thread
constexpr int kTile = kThreads * kRounds;  // elements of a block, kTile / kWarps neighbours a warp
static_assert(kThreads == kDigits);

struct DigitCounts {
  uint32_t count[kWarps][kDigits];
};

// What one pass sorts: by digit key >> shift & 255.
struct Pass {
  const int32_t* keys;
  const int32_t* rows;
  int32_t* sorted_keys;
  int32_t* sorted_rows;
  int64_t count;
  int shift;
};

// Budget: 24 registers, 0 bytes shared.
__global__ void __launch_bounds__(kThreads) keys_kernel(RowTargets args, int32_t* keys, int32_t* rows) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= args.rows) return;
  const int64_t id = args.ids[row];
  const bool counts =
      id != args.skip && id >= 0 && id < args.targets && (args.gate == nullptr || args.gate[row] >= 0);
  keys[row] = static_cast<int32_t>(counts ? id : args.targets);
  rows[row] = static_cast<int32_t>(row);
}

// Counts the digits of each warp's elements; ranks[i] is how many equal ones the warp met before the thread's
// i-th, and digits[i] which it is, kDigits for none.
__device__ __forceinline__ void count_digits(const Pass& pass, DigitCounts& shared, int (&digits)[kRounds],
                                             uint32_t (&ranks)[kRounds]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int w = 0; w < kWarps; ++w) shared.count[w][threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int64_t place = int64_t{blockIdx.x} * kTile + (warp * kRounds + i) * 32 + lane;
    digits[i] = place < pass.count ? pass.keys[place] >> pass.shift & (kDigits - 1) : kDigits;
    const uint32_t equal = __match_any_sync(0xffffffffu, digits[i]);
    const uint32_t earlier = equal & ((1u << lane) - 1);
    const bool counts = digits[i] < kDigits;
    ranks[i] = (counts ? shared.count[warp][digits[i]] : 0) + static_cast<uint32_t>(__popc(earlier));
    __syncwarp();
    if (counts && earlier == 0) shared.count[warp][digits[i]] += static_cast<uint32_t>(__popc(equal));
    __syncwarp();
  }
  __syncthreads();
}

// counts: [blocks, kDigits].
// Budget: 24 registers, 8192 bytes shared.
__global__ void __launch_bounds__(kThreads) count_kernel(Pass pass, uint32_t* counts) {
  auto& shared = simt::shared<DigitCounts>();
  int digits[kRounds];
  uint32_t ranks[kRounds];
  count_digits(pass, shared, digits, ranks);
  uint32_t total = 0;
  for (int w = 0; w < kWarps; ++w) total += shared.count[w][threadIdx.x];
  counts[int64_t{blockIdx.x} * kDigits + threadIdx.x] = total;
}

struct DigitTotals {
  uint32_t total[kDigits];
};

// One block turns the counts into places: where each block's elements of each digit go.
// Budget: 32 registers, 1024 bytes shared.
__global__ void __launch_bounds__(kThreads) place_kernel(uint32_t* counts, int64_t blocks) {
  auto& shared = simt::shared<DigitTotals>();
  uint32_t total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += counts[b * kDigits + threadIdx.x];
  shared.total[threadIdx.x] = total;
  __syncthreads();
  uint32_t place = 0;
  for (unsigned digit = 0; digit < threadIdx.x; ++digit) place += shared.total[digit];
  for (int64_t b = 0; b < blocks; ++b) {
    const uint32_t count = counts[b * kDigits + threadIdx.x];
    counts[b * kDigits + threadIdx.x] = place;
    place += count;
  }
}

// Budget: 48 registers, 8192 bytes shared.
__global__ void __launch_bounds__(kThreads) move_kernel(Pass pass, const uint32_t* places) {
  auto& shared = simt::shared<DigitCounts>();
  int digits[kRounds];
  uint32_t ranks[kRounds];
  count_digits(pass, shared, digits, ranks);
  uint32_t place = places[int64_t{blockIdx.x} * kDigits + threadIdx.x];
  for (int w = 0; w < kWarps; ++w) {
    const uint32_t count = shared.count[w][threadIdx.x];
    shared.count[w][threadIdx.x] = place;
    place += count;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    if (digits[i] == kDigits) continue;
    const int64_t from = int64_t{blockIdx.x} * kTile + (warp * kRounds + i) * 32 + lane;
    const uint32_t to = shared.count[warp][digits[i]] + ranks[i];
    pass.sorted_keys[to] = pass.keys[from];
    pass.sorted_rows[to] = pass.rows[from];
  }
}

}  // namespace

void sort_rows(const char* what, const RowTargets& args, int32_t* sorted, int32_t* order) {
  constexpr int64_t kMax = (int64_t{1} << 31) - 1;
  HEED_CHECK(args.rows <= kMax && args.targets < kMax, ShapeError, what, ": ", args.rows, " rows for ",
             args.targets, " entries; on CUDA both must be less than 2^31");
  if (args.rows == 0) return;
  const auto blocks = [&](int64_t size) {
    return dim3(static_cast<unsigned>(simt::ceil_div(args.rows, size)));
  };
  const int64_t tiles = blocks(kTile).x;
  int passes = 1;
  while (args.targets >> (8 * passes) != 0) ++passes;
  const size_t rows = static_cast<size_t>(args.rows);
  const Scratch scratch((2 * rows + static_cast<size_t>(tiles) * kDigits) * sizeof(int32_t));
  int32_t *other_keys = scratch.as<int32_t>(), *other_rows = other_keys + rows;
  auto* const counts = reinterpret_cast<uint32_t*>(other_rows + rows);

  Pass pass{other_keys, other_rows, sorted, order, args.rows, 0};
  if (passes % 2 == 0) pass = {sorted, order, other_keys, other_rows, args.rows, 0};
  launch(what, keys_kernel, blocks(kThreads), dim3(kThreads), 0, args, const_cast<int32_t*>(pass.keys),
         const_cast<int32_t*>(pass.rows));
  for (int i = 0; i < passes; ++i) {
    launch(what, count_kernel, blocks(kTile), dim3(kThreads), 0, pass, counts);
    launch(what, place_kernel, dim3(1), dim3(kThreads), 0, counts, tiles);
    launch(what, move_kernel, blocks(kTile), dim3(kThreads), 0, pass, counts);
    pass = {
        pass.sorted_keys, pass.sorted_rows, const_cast<int32_t*>(pass.keys), const_cast<int32_t*>(pass.rows),
        args.rows,        pass.shift + 8};
  }
}

}  // namespace heed::cuda
