#include <algorithm>

#include <heed/core/base/check.h>
#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/embedding.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/embedding.cpp"
#include <heed/kernels/cpu/dropout_simd.h>
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/tail-inl.h>

#ifndef HEED_KERNELS_CPU_EMBEDDING_ONCE_
#define HEED_KERNELS_CPU_EMBEDDING_ONCE_
namespace heed::cpu {

constexpr int64_t kColumnBlock = 256;  // columns that a task of the backward keeps in a buffer
static_assert(kColumnBlock <= kDropoutChunk);

/// A table's gradient and, for each of its rows, which rows of gy it sums: order[first[i]] … order[first[i +
/// 1] - 1].
template <class A>
struct TableGradient {
  A* gradient;  // [table rows, cols]
  const int64_t *first, *order;
  A scale;
  bool accumulate;
};

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE void embed_row(const kernels::EmbeddingForward<T>& args, int64_t row, KeepMaskBuffer& buffer) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), cols = args.cols;
  const T* weight = args.weight + args.ids[row] * cols;
  const T* position = args.position ? args.position + args.position_ids[row] * cols : nullptr;
  const auto scale = hn::Set(d, static_cast<A>(args.scale));
  for (int64_t begin = 0; begin < cols; begin += kDropoutChunk) {
    const int64_t end = std::min(begin + kDropoutChunk, cols);
    const bool drops = args.dropout.active();
    if (drops) fill_keep_mask(args.dropout, row * cols + begin, end - begin, buffer.bits);
    for (int64_t c = begin; c < end; c += lanes) {
      const int64_t count = std::min(lanes, end - c);
      auto v = hn::Mul(load_up_to(d, weight + c, count), scale);
      if (position) v = hn::Add(v, load_up_to(d, position + c, count));
      if (drops) v = apply_dropout(d, v, buffer.bits, c - begin, args.dropout);
      store_up_to(v, d, args.y + row * cols + c, count);
    }
  }
}

template <class T>
void embed_rows(const kernels::EmbeddingForward<T>& args, int64_t begin, int64_t end) {
  KeepMaskBuffer buffer;
  for (int64_t row = begin; row < end; ++row) {
    if (args.ids[row] == kNoToken) {
      std::fill_n(args.y + row * args.cols, args.cols, T(accumulator_t<T>(0)));
    } else {
      embed_row(args, row, buffer);
    }
  }
}
HEED_TYPED(embed_rows, kernels::EmbeddingForward)

/// Columns `column` … `column` + count - 1 of table row `entry`.
template <class T>
void sum_table_row(const kernels::EmbeddingBackward<T>& args, const TableGradient<accumulator_t<T>>& table,
                   int64_t entry, int64_t column, int64_t count) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (table.accumulate && table.first[entry] == table.first[entry + 1]) return;
  alignas(64) A sums[kColumnBlock + hn::MaxLanes(d)];
  KeepMaskBuffer buffer;
  for (int64_t c = 0; c < count; c += lanes) hn::Store(hn::Zero(d), d, sums + c);
  for (int64_t i = table.first[entry]; i < table.first[entry + 1]; ++i) {
    const int64_t element = table.order[i] * args.cols + column;
    const bool drops = args.dropout.active();
    if (drops) fill_keep_mask(args.dropout, element, count, buffer.bits);
    for (int64_t c = 0; c < count; c += lanes) {
      auto g = load_up_to(d, args.gy + element + c, count - c);
      if (drops) g = apply_dropout(d, g, buffer.bits, c, args.dropout);
      hn::Store(hn::Add(hn::Load(d, sums + c), g), d, sums + c);
    }
  }
  A* out = table.gradient + entry * args.cols + column;
  const auto scale = hn::Set(d, table.scale);
  for (int64_t c = 0; c < count; c += lanes) {
    auto sum = hn::Mul(hn::Load(d, sums + c), scale);
    if (table.accumulate) sum = hn::Add(sum, load_up_to(d, out + c, count - c));
    store_up_to(sum, d, out + c, count - c);
  }
}
void sum_table_row_f32(const kernels::EmbeddingBackward<float>& args, const TableGradient<float>& table,
                       int64_t entry, int64_t column, int64_t count) {
  sum_table_row(args, table, entry, column, count);
}
void sum_table_row_bf16(const kernels::EmbeddingBackward<bfloat16>& args, const TableGradient<float>& table,
                        int64_t entry, int64_t column, int64_t count) {
  sum_table_row(args, table, entry, column, count);
}
void sum_table_row_f64(const kernels::EmbeddingBackward<double>& args, const TableGradient<double>& table,
                       int64_t entry, int64_t column, int64_t count) {
  sum_table_row(args, table, entry, column, count);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(embed_rows)
HEED_EXPORT_TYPED(sum_table_row)

/// Writes gradient (+)= scale * the sum of gy over the rows with ids[row] = i, into row i. Rows without a
/// token, and those with id `skip`, are left out.
template <class T>
void table_gradient(const kernels::EmbeddingBackward<T>& args, const int64_t* ids, int64_t skip,
                    int64_t table_rows, accumulator_t<T>* gradient, accumulator_t<T> scale, bool accumulate) {
  // A stable counting sort: each table row's gradients in the order of the rows.
  Workspace<int64_t> first_memory(table_rows + 1), order_memory(args.rows);
  int64_t *const first = first_memory.data(), *const order = order_memory.data();
  const auto counts = [&](int64_t row) { return args.ids[row] != kNoToken && ids[row] != skip; };
  std::fill_n(first, table_rows + 1, 0);
  for (int64_t row = 0; row < args.rows; ++row) {
    if (counts(row)) ++first[ids[row]];
  }
  int64_t total = 0;
  for (int64_t i = 0; i <= table_rows; ++i) total += first[i], first[i] = total;
  for (int64_t row = args.rows; row-- > 0;) {  // from the back, so that first[] ends at each one's beginning
    if (counts(row)) order[--first[ids[row]]] = row;
  }

  const TableGradient<accumulator_t<T>> table{gradient, first, order, scale, accumulate};
  const auto sum = HEED_SIMD_OF(T, sum_table_row);
  const int64_t blocks = ceil_divide(args.cols, kColumnBlock);
  const int64_t grain = std::clamp<int64_t>(table_rows * blocks / 64, 1, 64);
  parallel_for(table_rows * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % blocks * kColumnBlock;
      sum(args, table, i / blocks, column, std::min(kColumnBlock, args.cols - column));
    }
  });
}

}  // namespace

template <class T>
void embedding_forward(const kernels::EmbeddingForward<T>& args) {
  kernels::check_ids(args.ids, args.position_ids, args.rows, args.vocabulary, args.positions);
  const auto rows = HEED_SIMD_OF(T, embed_rows);
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, args.cols));
  parallel_for(args.rows, grain, [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

template <class T>
void embedding_backward(const kernels::EmbeddingBackward<T>& args) {
  using A = accumulator_t<T>;
  kernels::check_ids(args.ids, args.position_ids, args.rows, args.vocabulary, args.positions);
  if (args.gweight != nullptr) {
    table_gradient(args, args.ids, args.padding_id, args.vocabulary, args.gweight, static_cast<A>(args.scale),
                   args.accumulate_weight);
  }
  if (args.gposition != nullptr && args.position_ids != nullptr) {
    table_gradient(args, args.position_ids, kNoToken, args.positions, args.gposition, A(1),
                   args.accumulate_position);
  }
}

#define HEED_INSTANTIATE(T)                                                \
  template void embedding_forward<T>(const kernels::EmbeddingForward<T>&); \
  template void embedding_backward<T>(const kernels::EmbeddingBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu
#endif
