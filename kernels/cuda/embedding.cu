#include <heed/kernels/cuda/dropout_mask.cuh>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/sorted_rows.cuh>
#include <heed/kernels/cuda/wrong_index.cuh>
#include <heed/kernels/embedding.h>

namespace heed::cuda {
namespace {

// The space is that of y; operands 1 and 2 are the row and the column.
template <class T>
struct EmbedOp {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<T>;
  kernels::EmbeddingForward<T> args;
  IndexGuard ids, positions;

  bool aligned() const {
    return aligned_for<kWidth>(args.weight) && aligned_for<kWidth>(args.position) &&
           aligned_for<kWidth>(args.y);
  }

  // A row of the table, or NaN if it has no such row, so that a step does not learn from it.
  template <int kWidth>
  __device__ __forceinline__ void look_up(float (&v)[kWidth], const T* table, const IndexGuard& guard,
                                          int64_t id, int64_t row, int64_t col) const {
    if (guard.holds(id, row)) return load(v, table + id * args.cols + col);
    for (int j = 0; j < kWidth; ++j) v[j] = kNan;
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t id = args.ids[at[1]];
    float v[kWidth] = {};
    if (id != kNoToken) {
      look_up(v, args.weight, ids, id, at[1], at[2]);
      const float scale = static_cast<float>(args.scale);
      for (int j = 0; j < kWidth; ++j) v[j] *= scale;
      if (args.position != nullptr) {
        float position[kWidth];
        look_up(position, args.position, positions, args.position_ids[at[1]], at[1], at[2]);
        for (int j = 0; j < kWidth; ++j) v[j] += position[j];
      }
      apply_dropout(v, args.dropout, at[0]);
    }
    store(args.y + at[0], v);
  }
};

}  // namespace

template <class T>
void embedding_forward(const kernels::EmbeddingForward<T>& args) {
  elementwise("embedding_forward",
              EmbedOp<T>{args, IndexGuard(kernels::IndexUse::embedding_id, args.vocabulary),
                         IndexGuard(kernels::IndexUse::embedding_position, args.positions)},
              rows_and_columns(args.rows, args.cols));
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
