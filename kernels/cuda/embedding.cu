#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/indexing/sorted_rows.cuh>
#include <heed/kernels/cuda/indexing/wrong_index.cuh>
#include <heed/kernels/cuda/vector.cuh>
#include <heed/kernels/embedding.h>

namespace heed::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 4;  // that a thread looks up at once

template <class T>
struct ForwardWork {
  kernels::EmbeddingForward<T> args;
  IndexGuard ids, positions;
};

// v += the row of the table from column `col` on, or NaN if it has no such row, so that a step does not learn
// from it.
template <int kWidth, class T>
__device__ __forceinline__ void add_row(float (&v)[kWidth], const T* table, int64_t start, bool exists) {
  float row[kWidth];
  if (exists) load(row, table + start);
  for (int j = 0; j < kWidth; ++j) v[j] += exists ? row[j] : kNan;
}

// Threads (x, y) of a block: from column x * kWidth on, rows kRows * y to kRows * (y + 1).
// Budget: 80 registers, 0 bytes shared.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(simt::Dependent<ForwardWork<T>> arguments) {
  const ForwardWork<T>& work = arguments.wait();
  const kernels::EmbeddingForward<T>& args = work.args;
  const int64_t first = (int64_t{blockIdx.x} * blockDim.y + threadIdx.y) * kRows;
  int64_t id[kRows];
  bool holds[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) id[k] = first + k < args.rows ? args.ids[first + k] : kNoToken;
#pragma unroll
  for (int k = 0; k < kRows; ++k) holds[k] = id[k] != kNoToken && work.ids.holds(id[k], first + k);
  const float scale = static_cast<float>(args.scale);
  for (int64_t col = int64_t{threadIdx.x} * kWidth; col < args.cols; col += int64_t{blockDim.x} * kWidth) {
    T raw[kRows][kWidth];
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (holds[k]) load_raw(raw[k], args.weight + id[k] * args.cols + col);
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const int64_t row = first + k, at = row * args.cols + col;
      if (row >= args.rows) return;
      float v[kWidth] = {};
      if (id[k] != kNoToken) {
        if (holds[k]) widen(v, raw[k]);
        for (int j = 0; j < kWidth; ++j) v[j] = holds[k] ? v[j] * scale : kNan;
        if (args.position != nullptr) {
          const int64_t position = args.position_ids[row];
          add_row(v, args.position, position * args.cols + col, work.positions.holds(position, row));
        }
        apply_dropout(v, args.dropout, at);
      }
      store(args.y + at, v);
    }
  }
}

}  // namespace

template <class T>
void embedding_forward(const kernels::EmbeddingForward<T>& args) {
  if (args.rows == 0 || args.cols == 0) return;
  const ForwardWork<T> work{args, IndexGuard(kernels::IndexUse::embedding_id, args.vocabulary),
                            IndexGuard(kernels::IndexUse::embedding_position, args.positions)};
  const auto run = [&]<int kWidth>() {
    unsigned across = 1;
    while (across < kThreads && across * kWidth < args.cols) across *= 2;
    const dim3 block(across, kThreads / across);
    launch("embedding_forward", forward_kernel<T, kWidth>,
           dim3(static_cast<unsigned>(simt::ceil_div<int64_t>(args.rows, block.y * kRows))), block, 0, work);
  };
  if (vectorizable<T>(args.cols, args.weight, args.position, args.y))
    run.template operator()<kVectorWidth<T>>();
  else
    run.template operator()<1>();
}

template <class T>
void embedding_backward(const kernels::EmbeddingBackward<T>& args) {
  constexpr const char* kWhat = "embedding_backward";
  if (args.gweight != nullptr)
    sum_rows(kWhat, RowSums<T>{.rows = {args.ids, nullptr, args.padding_id, args.rows, args.vocabulary},
                               .from = args.gy,
                               .to = args.gweight,
                               .cols = args.cols,
                               .dropout = args.dropout,
                               .scale = static_cast<float>(args.scale),
                               .accumulate = args.accumulate_weight});
  if (args.gposition != nullptr && args.position_ids != nullptr)
    sum_rows(kWhat, RowSums<T>{.rows = {args.position_ids, args.ids, kNoToken, args.rows, args.positions},
                               .from = args.gy,
                               .to = args.gposition,
                               .cols = args.cols,
                               .dropout = args.dropout,
                               .scale = 1.0f,
                               .accumulate = args.accumulate_position});
}

#define HEED_INSTANTIATE(T)                                                \
  template void embedding_forward<T>(const kernels::EmbeddingForward<T>&); \
  template void embedding_backward<T>(const kernels::EmbeddingBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
