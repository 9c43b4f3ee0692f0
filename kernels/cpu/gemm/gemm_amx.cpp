#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/gemm/gemm_amx.cpp"

#include <algorithm>
#include <limits>
#include <new>
#include <type_traits>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/per_thread.h>
#include <heed/kernels/cpu/gemm/gemm_amx.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/simd/simd.h>
#include <heed/kernels/cpu/tasks/workspace.h>
// The -inl header follows simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/gemm/gemm_amx_task-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

void amx_task_f32(const AmxTask<float>& task, AmxBuffers& buffers) { AmxTaskRunner(task, buffers).run(); }
void amx_task_bf16(const AmxTask<bfloat16>& task, AmxBuffers& buffers) { AmxTaskRunner(task, buffers).run(); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HWY_EXPORT(amx_task_f32);
HWY_EXPORT(amx_task_bf16);
void amx_task(const AmxTask<float>& task, AmxBuffers& buffers) { HEED_SIMD(amx_task_f32)(task, buffers); }
void amx_task(const AmxTask<bfloat16>& task, AmxBuffers& buffers) { HEED_SIMD(amx_task_bf16)(task, buffers); }

/// A block by vectors, for numbers that have no parts.
void multiply_exactly(const AmxTask<float>& task, int64_t row, int64_t col) {
  const GemmFunctions<float>& functions = gemm_functions<float>();
  const GemmGeometry& geometry = functions.geometry;
  const int64_t rows = std::min(kAmxBlockLines, task.rows - row),
                cols = std::min(kAmxBlockLines, task.cols - col);
  const MatrixView<float> a = task.a.at(row, 0);
  Workspace<float> packed(geometry.packed_size(cols, task.k));
  Workspace<float> buffer(copies_a(a, rows, task.k, geometry.k_group) ? geometry.a_buffer(rows, task.k) : 0);
  functions.pack_b(task.b.at(0, col), task.k, cols, packed.data());
  functions.block({.a = a,
                   .a_rows = rows,
                   .b = packed.data(),
                   .b_stride = 0,
                   .c = task.c + row * task.ldc + col,
                   .ldc = task.ldc,
                   .rows = rows,
                   .cols = cols,
                   .k = task.k,
                   .alpha = task.alpha,
                   .added = task.added.at(row, col),
                   .a_buffer = buffer.data()});
}

/// Memory that a thread keeps from task to task, so that its caches have it.
class ThreadBuffer {
 public:
  ThreadBuffer() = default;
  ~ThreadBuffer() { release(); }
  ThreadBuffer(const ThreadBuffer&) = delete;
  ThreadBuffer& operator=(const ThreadBuffer&) = delete;

  bfloat16* at_least(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(bfloat16);
    if (bytes > size_) {
      release();
      memory_ = ::operator new(bytes, kLine);
      size_ = bytes;
    }
    return static_cast<bfloat16*>(memory_);
  }

 private:
  static constexpr std::align_val_t kLine{64};

  void release() {
    ::operator delete(memory_, kLine);
    memory_ = nullptr;
    size_ = 0;
  }

  void* memory_ = nullptr;
  size_t size_ = 0;
};

template <class T>
void multiply(const AmxTask<T>& task) {
  const int64_t pieces = task.pieces(), rows = round_up(task.rows, kAmxBlockLines),
                cols = round_up(task.cols, kAmxBlockLines),
                group = ceil_divide(task.steps(), pieces) * kParts<T> * kAmxTileElements;
  // Rows of bf16 that are whole tiles are read in place.
  const bool packs_a = kIsFloat<T> || task.a.column_stride != 1 || task.rows % kAmxLines != 0 ||
                       task.k % kAmxDepth != 0 || !is_aligned(task.a.data, task.a.row_stride);
  const int64_t a_size = packs_a ? rows / kAmxLines * group : 0,
                b_size = (task.overlapped ? 4 : cols / kAmxLines) * group,
                sums = pieces > 1 ? rows * cols : 0;
  const int64_t size = a_size + b_size + 2 * sums;
  ThreadBuffer* const kept = detail::PerThread<ThreadBuffer>::get();
  Workspace<bfloat16> own(kept != nullptr ? 0 : size);
  bfloat16* const a = kept != nullptr ? kept->at_least(size) : own.data();
  bfloat16* const b = a + a_size;
  AmxBuffers buffers{packs_a ? a : nullptr, b, group, reinterpret_cast<float*>(b + b_size), {}, {}};
  amx_task(task, buffers);
  if constexpr (kIsFloat<T>) {
    for (int64_t i = 0; i < task.rows; i += kAmxBlockLines)
      for (int64_t j = 0; j < task.cols; j += kAmxBlockLines)
        if (buffers.inexact(i, j)) multiply_exactly(task, i, j);
  }
}

}  // namespace

AmxBlocking::AmxBlocking(int64_t m, int64_t n, bool splits_k)
    : BlockGrid({m, kAmxBlockLines, kMaxTaskRows}, {n, kAmxBlockLines, kMaxTaskCols}) {
  if (splits_k) return;
  constexpr int64_t kMinLines = 64;  // of a task, in each direction
  // More than four would have two threads pack for too long; of nine and more none has to be shared evenly.
  constexpr int64_t kMinParts = 4, kManyParts = 9;
  const int64_t most_rows = std::max(rows_.parts, std::min(m / kMinLines, kManyParts)),
                most_cols = std::max(cols_.parts, std::min(n / kMinLines, kManyParts)),
                most = most_rows * most_cols,
                min = most >= kMinParts ? kMinParts
                      : most >= 2       ? 2
                                        : 1;
  const auto enough = [min](int64_t parts) {
    return parts >= min && (parts % 2 == 0 || parts >= kManyParts || min == 1);
  };
  int64_t fewest = std::numeric_limits<int64_t>::max();
  const int64_t least_cols = cols_.parts;
  for (int64_t i = rows_.parts; i <= most_rows; ++i) {
    for (int64_t j = least_cols; j <= most_cols; ++j) {
      const int64_t packed = j * m + i * n;
      if (!enough(i * j) || packed >= fewest) continue;
      fewest = packed, rows_.parts = i, cols_.parts = j;
    }
  }
}

template <class T>
AmxProduct<T>::AmxProduct(const BlockedGemm<T>& args)
    : args_(args),
      splits_k_(args.m * args.n <= kSmallWeight && splits_k(args.a, args.output, args.k)),
      parts_(args.m, args.n, splits_k_),
      partial_(splits_k_ ? args.m * args.n : 0) {}

template <class T>
void AmxProduct<T>::run(int64_t task) const {
  const bool second = task >= parts_.count();  // part of K
  const AmxBlocking::Block at = parts_[task % parts_.count()];
  const int64_t half = splits_k_ ? round_up(args_.k, kSplitK * kAmxDepth) / kSplitK : args_.k;
  const int64_t first = second ? half : 0;
  const GemmOutput<T>& output = args_.output;
  Workspace<float> buffer(output.c ? 0 : at.rows * at.cols);
  AmxTask<T> part{.a = args_.a.at(at.row, first),
                  .b = args_.b.at(first, at.col),
                  .c = buffer.data(),
                  .ldc = at.cols,
                  .rows = at.rows,
                  .cols = at.cols,
                  .k = second ? args_.k - half : half,
                  .alpha = output.alpha,
                  .added = output.added.at(at.row, at.col),
                  .nontemporal = stores_nontemporal(args_.a, args_.output, args_.m, args_.n),
                  .overlapped = (args_.m + args_.n) * args_.k > kMaxCachedElements<T>};
  if (second)
    part.c = partial_.data() + at.row * args_.n + at.col, part.ldc = args_.n, part.added = {};
  else if (output.c)
    part.c = output.c + at.row * output.ldc + at.col, part.ldc = output.ldc;
  multiply(part);
  if (output.epilogue) output.epilogue({part.c, part.ldc, at.row, at.col, at.rows, at.cols});
}

template <class T>
void AmxProduct<T>::finish() const {
  if (splits_k_) add_partial(partial_.data(), args_.m, args_.n, args_.output.c, args_.output.ldc);
}

template class AmxProduct<float>;
template class AmxProduct<bfloat16>;

}  // namespace heed::cpu
#endif
