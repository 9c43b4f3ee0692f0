#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/gemm/gemm_amx.cpp"

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>

#include <heed/core/base/divide.h>
#include <heed/core/base/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_amx.h>
#include <heed/kernels/cpu/gemm/gemm_tile.h>
#include <heed/kernels/cpu/simd/simd.h>
#include <heed/kernels/cpu/tasks/workspace.h>
// The -inl header follows simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/gemm/gemm_amx_task-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

void amx_tile_f32(const AmxTile<float>& tile, AmxBuffers& buffers) { AmxTask(tile, buffers).run(); }
void amx_tile_bf16(const AmxTile<bfloat16>& tile, AmxBuffers& buffers) { AmxTask(tile, buffers).run(); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HWY_EXPORT(amx_tile_f32);
HWY_EXPORT(amx_tile_bf16);
void amx_tile(const AmxTile<float>& tile, AmxBuffers& buffers) { HEED_SIMD(amx_tile_f32)(tile, buffers); }
void amx_tile(const AmxTile<bfloat16>& tile, AmxBuffers& buffers) { HEED_SIMD(amx_tile_bf16)(tile, buffers); }

/// A block by vectors, for numbers that have no parts.
void multiply_exactly(const AmxTile<float>& tile, int64_t row, int64_t col) {
  const GemmFunctions<float>& functions = gemm_functions<float>();
  const GemmGeometry& geometry = functions.geometry;
  const int64_t rows = std::min(kBlockLines, tile.rows - row), cols = std::min(kBlockLines, tile.cols - col);
  const MatrixView<float> a = tile.a.at(row, 0);
  Workspace<float> packed(geometry.packed_size(cols, tile.k));
  Workspace<float> buffer(copies_a(a, rows, tile.k, geometry.step) ? geometry.a_buffer(rows, tile.k) : 0);
  functions.pack_b(tile.b.at(0, col), tile.k, cols, packed.data());
  functions.tile({a, rows, packed.data(), 0, tile.c + row * tile.ldc + col, tile.ldc, rows, cols, tile.k,
                  tile.alpha, tile.added.at(row, col), buffer.data()});
}

/// At least `count` elements that belong to the calling thread until it ends, so that its caches have them.
bfloat16* own_memory(int64_t count) {
  constexpr std::align_val_t kLine{64};
  struct Delete {
    void operator()(void* p) const { ::operator delete(p, kLine); }
  };
  thread_local std::unique_ptr<void, Delete> memory;
  thread_local size_t size = 0;
  const size_t bytes = static_cast<size_t>(count) * sizeof(bfloat16);
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(::operator new(bytes, kLine));
    size = bytes;
  }
  return static_cast<bfloat16*>(memory.get());
}

template <class T>
void multiply(const AmxTile<T>& tile) {
  const int64_t pieces = tile.pieces(), rows = round_up(tile.rows, kBlockLines),
                cols = round_up(tile.cols, kBlockLines),
                group = ceil_divide(tile.steps(), pieces) * kParts<T> * kAmxTileElements;
  // Rows of bf16 that are whole tiles are read where they lie.
  const bool packs_a = kIsFloat<T> || tile.a.column_stride != 1 || tile.rows % kAmxLines != 0 ||
                       tile.k % kAmxDepth != 0 || !is_aligned(tile.a.data, tile.a.row_stride);
  const int64_t a_size = packs_a ? rows / kAmxLines * group : 0,
                b_size = (tile.overlapped ? 4 : cols / kAmxLines) * group,
                sums = pieces > 1 ? rows * cols : 0;
  bfloat16* const a = own_memory(a_size + b_size + 2 * sums);
  bfloat16* const b = a + a_size;
  AmxBuffers buffers{packs_a ? a : nullptr, b, group, reinterpret_cast<float*>(b + b_size), {}, {}};
  amx_tile(tile, buffers);
  if constexpr (kIsFloat<T>) {
    for (int64_t i = 0; i < tile.rows; i += kBlockLines)
      for (int64_t j = 0; j < tile.cols; j += kBlockLines)
        if (buffers.inexact(i, j)) multiply_exactly(tile, i, j);
  }
}

/// Tasks for all threads where there are rows and columns for it: into how many they are cut changes no bits.
void share_out(int64_t threads, Cut& rows, Cut& cols) {
  constexpr int64_t kLeastLines = 64;
  const auto enough = [&] {
    const int64_t tasks = rows.parts * cols.parts;
    return tasks % threads == 0 || tasks > 4 * threads;
  };
  const auto cut = [&](Cut& lines) {
    while (!enough() && (lines.parts + 1) * kLeastLines <= lines.count) ++lines.parts;
  };
  cut(rows);
  cut(cols);
}

}  // namespace

template <class T>
AmxProduct<T>::AmxProduct(const BlockedGemm<T>& args)
    : args_(args),
      halves_(args.m * args.n <= kSmallWeight && shares_tokens(args.a, args.output, args.k)),
      rows_(args.m, kBlockLines, kMostRows),
      cols_(args.n, kBlockLines, kMostCols),
      second_(halves_ ? args.m * args.n : 0) {
  share_out(halves_ ? ceil_divide(thread_count(), 2) : thread_count(), rows_, cols_);
}

template <class T>
void AmxProduct<T>::run(int64_t task) const {
  const bool second = task >= tiles();
  const int64_t i = task % tiles() / cols_.parts, j = task % cols_.parts;
  const int64_t row = rows_.begin(i), col = cols_.begin(j), rows = rows_.size(i), cols = cols_.size(j);
  const int64_t half = halves_ ? round_up(args_.k, 2 * kAmxDepth) / 2 : args_.k;
  const int64_t first = second ? half : 0, k = second ? args_.k - half : half;
  const GemmOutput<T>& output = args_.output;
  Workspace<float> buffer(output.c ? 0 : rows * cols);
  AmxTile<T> tile{args_.a.at(row, first),
                  args_.b.at(first, col),
                  buffer.data(),
                  cols,
                  rows,
                  cols,
                  k,
                  output.alpha,
                  output.added.at(row, col),
                  exceeds_caches(args_.a, args_.output, args_.m, args_.n),
                  (args_.m + args_.n) * args_.k > kMostCached<T>};
  if (second)
    tile.c = second_.data() + row * args_.n + col, tile.ldc = args_.n, tile.added = {};
  else if (output.c)
    tile.c = output.c + row * output.ldc + col, tile.ldc = output.ldc;
  multiply(tile);
  if (output.finish) output.finish(output.context, tile.c, tile.ldc, row, col, rows, cols);
}

template <class T>
void AmxProduct<T>::finish() const {
  if (halves_) add_rows(second_.data(), args_.m, args_.n, args_.output.c, args_.output.ldc);
}

template class AmxProduct<float>;
template class AmxProduct<bfloat16>;

}  // namespace heed::cpu
#endif
