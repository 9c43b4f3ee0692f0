// Incremental packing of operands for AMX, a quarter of a tile at a time.
#include <heed/kernels/cpu/gemm/amx_interleave.h>
#include <heed/kernels/cpu/gemm/amx_pack-inl.h>

#ifndef HEED_KERNELS_CPU_AMX_STREAM_ONCE_
#define HEED_KERNELS_CPU_AMX_STREAM_ONCE_
namespace heed::cpu {

/// `lines` lines of k values of K each, to be packed in groups of 16 lines whose tiles follow each other.
template <class T>
struct PackStream : InterleavedWork {
  MatrixView<T> x;
  int64_t lines, k;
  bfloat16* out;
  int64_t group;  // elements from one group to the next
  int64_t ahead;  // elements from what is packed to what is prefetched into the second-level cache; 0: none
  bool* inexact;  // becomes whether some float has no parts
  int64_t line, value, quarter;  // where the next unit is
  const T* from;                 // its tile
  float* to;

  int64_t quarters() const { return kQuarters * ceil_divide(lines, kAmxLines) * ceil_divide(k, kAmxDepth); }
};

}  // namespace heed::cpu
#endif

#if defined(HEED_KERNELS_CPU_AMX_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_AMX_STREAM_INL_H_
#undef HEED_KERNELS_CPU_AMX_STREAM_INL_H_
#else
#define HEED_KERNELS_CPU_AMX_STREAM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Prefetches a quarter of a tile into the second-level cache.
template <bool Values, class T>
HWY_INLINE void prefetch_quarter(MatrixView<T> x, int64_t quarter) {
  constexpr int64_t kLine = kLineBytes / sizeof(T);
  const int64_t rows = (Values ? kAmxLines : kAmxDepth) / kQuarters,
                stride = Values ? x.row_stride : x.column_stride;
  const T* row = x.data + quarter * rows * stride;
  for (int64_t i = 0; i < rows; ++i, row += stride)
    for (int64_t j = 0; j < (Values ? kAmxDepth : kAmxLines); j += kLine) __builtin_prefetch(row + j, 0, 2);
}

/// The next quarters of a PackStream. The first is all of a tile that is not whole.
template <bool Values, bool Transposed, class T>
void pack_stream(InterleavedWork& stream, int64_t count) {
  PackStream<T>& self = static_cast<PackStream<T>&>(stream);
  const MatrixView<T> x = self.x;
  const int64_t ahead = self.ahead;
  int64_t quarter = self.quarter;
  auto left = hn::Zero(Tag<float>());
  for (int64_t i = 0; i < count; ++i) {
    const MatrixView<T> tile{self.from, x.row_stride, x.column_stride};
    if (ahead != 0)
      prefetch_quarter<Values>(MatrixView<T>{tile.data + ahead, tile.row_stride, tile.column_stride},
                               quarter);
    pack_quarter_within<Values, Transposed, kParts<T>>(tile, self.lines - self.line, self.k - self.value,
                                                       quarter, self.to, left);
    if (++quarter < kQuarters) continue;
    quarter = 0;
    self.line += kAmxLines;
    if (self.line >= self.lines) self.line = 0, self.value += kAmxDepth;
    self.from = x.at(self.line, self.value).data;
    self.to = reinterpret_cast<float*>(self.out + self.line / kAmxLines * self.group +
                                       self.value / kAmxDepth * kParts<T> * kAmxTileElements);
  }
  self.quarter = quarter;
  if (kIsFloat<T> && !hn::AllFalse(Tag<float>(), hn::IsNaN(left))) *self.inexact = true;
}

/// Makes it a stream of lines of A or, `Transposed`, of columns of B, all of them due. Each member is set
/// where it is: a copy would be read by vectors right after single numbers were written to it, and so wait
/// until the tiles before it are stored.
template <bool Transposed, class T>
HWY_INLINE void begin_stream(PackStream<T>& stream, MatrixView<T> x, int64_t lines, int64_t k, bfloat16* out,
                             int64_t group, int64_t ahead, bool& inexact) {
  stream.run = x.column_stride == 1 ? pack_stream<true, Transposed, T> : pack_stream<false, !Transposed, T>;
  stream.x.data = x.data;
  stream.x.row_stride = x.row_stride;
  stream.x.column_stride = x.column_stride;
  stream.lines = lines;
  stream.k = k;
  stream.out = out;
  stream.group = group;
  stream.ahead = ahead;
  stream.inexact = &inexact;
  stream.line = stream.value = stream.quarter = 0;
  stream.from = x.data;
  stream.to = reinterpret_cast<float*>(out);
  stream.done = 0;
  stream.due = stream.quarters();
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
