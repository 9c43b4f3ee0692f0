// Operands of products by AMX in the order in which its tiles are loaded.
#include <cstring>
#include <type_traits>

#include <heed/core/base/dtype.h>
#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/gemm/gemm_pack-inl.h>
#include <heed/kernels/cpu/simd/simd.h>

#ifndef HEED_KERNELS_CPU_AMX_PACK_ONCE_
#define HEED_KERNELS_CPU_AMX_PACK_ONCE_
namespace heed::cpu {

template <class T>
constexpr bool kIsFloat = std::is_same_v<T, float>;
/// bf16 whose sum an element of T is.
template <class T>
constexpr int64_t kParts = kIsFloat<T> ? kAmxParts : 1;
constexpr int64_t kTilePairs = kAmxTileElements / 2;
/// A tile is packed in quarters.
constexpr int64_t kQuarters = 4, kQuarterRows = kAmxLines / kQuarters;

}  // namespace heed::cpu
#endif

#if defined(HEED_KERNELS_CPU_AMX_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_AMX_PACK_INL_H_
#undef HEED_KERNELS_CPU_AMX_PACK_INL_H_
#else
#define HEED_KERNELS_CPU_AMX_PACK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// The bf16 that is nearest to v, and then to what is left of it, each in the upper half of a lane. Of three
/// parts the last is what is left then, which is one too, and lower halves are 0. What is left of any but
/// finite numbers, and of those that round to infinity, is NaN.
template <class D, int64_t Parts>
HWY_INLINE void split(D d, Vec<D> v, Vec<D> (&parts)[Parts]) {
  const hn::RebindToUnsigned<D> d32;
  const auto half = hn::Set(d32, 0x8000), upper = hn::Set(d32, 0xffff0000);
  parts[0] = hn::BitCast(d, hn::And(hn::Add(hn::BitCast(d32, v), half), upper));
  const auto rest = hn::Sub(v, parts[0]);
  const auto rounded = hn::Add(hn::BitCast(d32, rest), half);
  if constexpr (Parts == kAmxParts) {
    parts[1] = hn::BitCast(d, hn::And(rounded, upper));
    parts[2] = hn::Sub(rest, parts[1]);
  } else {
    parts[1] = hn::BitCast(d, rounded);
  }
}

// A packed tile has 16 rows of 16 pairs for each part; rows of A are lines, rows of B pairs of values of K.

/// 32 values of K that lie next to each other, into a row for each part. Adds the last parts to `left`.
template <int64_t Parts, class D>
HWY_INLINE void pack_values(D d, const float* x, float* out, Vec<D>& left) {
  const hn::Repartition<uint16_t, D> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t p = 0; p < kAmxDepth; p += 2 * lanes) {
    Vec<D> low[Parts], high[Parts];
    split(d, hn::LoadU(d, x + p), low);
    split(d, hn::LoadU(d, x + p + lanes), high);
    left = hn::Add(left, hn::Add(low[Parts - 1], high[Parts - 1]));
    for (int64_t i = 0; i < Parts; ++i) {
      const auto pairs = hn::ConcatOdd(d16, hn::BitCast(d16, high[i]), hn::BitCast(d16, low[i]));
      hn::StoreU(hn::BitCast(d, pairs), d, out + i * kTilePairs + p / 2);
    }
  }
}

template <int64_t, class D>
HWY_INLINE void pack_values(D, const bfloat16* x, float* out, Vec<D>&) {
  std::memcpy(out, x, kAmxDepth * sizeof *x);
}

/// Two values of K of 16 lines that lie next to each other, into a row for each part.
template <int64_t Parts, class D>
HWY_INLINE void pack_lines(D d, const float* even, const float* odd, float* out, Vec<D>& left) {
  const hn::RebindToUnsigned<D> d32;
  const auto upper = hn::Set(d32, 0xffff0000);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < kAmxLines; c += lanes) {
    Vec<D> first[Parts], second[Parts];
    split(d, hn::LoadU(d, even + c), first);
    split(d, hn::LoadU(d, odd + c), second);
    left = hn::Add(left, hn::Add(first[Parts - 1], second[Parts - 1]));
    for (int64_t i = 0; i < Parts; ++i) {
      const auto pairs =
          hn::OrAnd(hn::ShiftRight<16>(hn::BitCast(d32, first[i])), upper, hn::BitCast(d32, second[i]));
      hn::StoreU(hn::BitCast(d, pairs), d, out + i * kTilePairs + c);
    }
  }
}

template <int64_t, class D>
HWY_INLINE void pack_lines(D d, const bfloat16* even, const bfloat16* odd, float* out, Vec<D>&) {
  const hn::RebindToUnsigned<D> d32;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < kAmxLines; c += lanes) {
    const auto lower = hn::ShiftRight<16>(hn::BitCast(d32, load(d, even + c)));
    hn::StoreU(hn::BitCast(d, hn::Or(lower, hn::BitCast(d32, load(d, odd + c)))), d, out + c);
  }
}

/// Blocks of 16 bytes, block q from x + q * stride. A masked load costs no shuffle.
template <class T>
HWY_INLINE Vec<Tag<float>> gather_blocks(const T* x, int64_t stride) {
  const Tag<float> d;
  const hn::RebindToUnsigned<Tag<float>> d32;
  constexpr int64_t kBlocks = hn::MaxLanes(d) / 4;
  const auto block = hn::ShiftRight<2>(hn::Iota(d32, 0));
  auto v = hn::LoadDup128(d, reinterpret_cast<const float*>(x));
  for (int64_t q = 1; q < kBlocks; ++q) {
    const auto own = hn::RebindMask(d, hn::Eq(block, hn::Set(d32, static_cast<uint32_t>(q))));
    v = hn::IfThenElse(own, hn::LoadDup128(d, reinterpret_cast<const float*>(x + q * stride)), v);
  }
  return v;
}

/// The transpose of 16 rows of 16 bytes, which are floats or pairs: four rows of 16.
template <class T>
HWY_INLINE void transpose_four(const T* x, int64_t stride, float* out, int64_t out_stride) {
  const Tag<float> d;
  for (int64_t c = 0; c < kAmxLines; c += hn::MaxLanes(d)) {
    Vec<Tag<float>> v[4];
    for (int64_t i = 0; i < 4; ++i) v[i] = gather_blocks(x + (c + i) * stride, 4 * stride);
    store_transposed(d, v, out + c, out_stride);
  }
}

/// The transpose of 16 x 16 floats or pairs.
HWY_INLINE void transpose(const float* x, int64_t stride, float* out, int64_t out_stride) {
  for (int64_t p = 0; p < kAmxLines; p += 4) transpose_four(x + p, stride, out + p * out_stride, out_stride);
}

/// Four of the 16 rows of a tile of 16 lines x 32 values of K, which `out` begins with. `Values`: whether
/// values of a line lie next to each other, or else lines; `Transposed`: whether the tile's rows are the
/// others.
template <bool Values, bool Transposed, int64_t Parts, class T, class V>
HWY_INLINE void pack_quarter(MatrixView<T> x, int64_t quarter, float* out, V& left) {
  const Tag<float> d;
  const int64_t row = kQuarterRows * quarter;
  if constexpr (!Transposed && Values) {
    const T* const from = x.data + row * x.row_stride;
    for (int64_t i = 0; i < kQuarterRows; ++i)
      pack_values<Parts>(d, from + i * x.row_stride, out + (row + i) * kAmxLines, left);
  } else if constexpr (!Transposed) {
    const T* const from = x.data + 2 * row * x.column_stride;
    for (int64_t i = 0; i < kQuarterRows; ++i) {
      const T* const even = from + 2 * i * x.column_stride;
      pack_lines<Parts>(d, even, even + x.column_stride, out + (row + i) * kAmxLines, left);
    }
  } else if constexpr (kIsFloat<T> && Values) {  // transposed before it has parts
    alignas(64) float buffer[2 * kQuarterRows * kAmxLines];
    for (int64_t p = 0; p < 2 * kQuarterRows; p += 4)
      transpose_four(x.data + 2 * row + p, x.row_stride, buffer + p * kAmxLines, kAmxLines);
    pack_quarter<false, false, Parts>(MatrixView<T>{buffer, 1, kAmxLines}, 0, out + row * kAmxLines, left);
  } else if constexpr (kIsFloat<T>) {
    alignas(64) float buffer[kQuarterRows * kAmxDepth];
    for (int64_t p = 0; p < kAmxDepth; p += kAmxLines)
      transpose_four(x.data + p * x.column_stride + row, x.column_stride, buffer + p, kAmxDepth);
    pack_quarter<true, false, Parts>(MatrixView<T>{buffer, kAmxDepth, 1}, 0, out + row * kAmxLines, left);
  } else if constexpr (Values) {
    transpose_four(x.data + 2 * row, x.row_stride, out + row * kAmxLines, kAmxLines);
  } else if (quarter == 0) {  // the whole tile, since pairs are made of all lines
    alignas(64) float buffer[kTilePairs];
    for (int64_t i = 0; i < kQuarters; ++i) pack_quarter<false, false, Parts>(x, i, buffer, left);
    transpose(buffer, kAmxLines, out, kAmxLines);
  }
}

/// All of them.
template <bool Values, bool Transposed, int64_t Parts, class T, class V>
HWY_INLINE void pack_tile(MatrixView<T> x, float* out, V& left) {
  for (int64_t i = 0; i < kQuarters; ++i) pack_quarter<Values, Transposed, Parts>(x, i, out, left);
}

/// The same for `lines` lines and k values of K, and zeros beyond.
template <bool Values, bool Transposed, int64_t Parts, class T, class V>
HWY_NOINLINE void pack_part_of_tile(MatrixView<T> x, int64_t lines, int64_t k, float* out, V& left) {
  alignas(64) T copy[kAmxTileElements] = {};
  const int64_t rows = Values ? lines : k, stride = Values ? x.row_stride : x.column_stride;
  constexpr int64_t kWidth = Values ? kAmxDepth : kAmxLines;
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(copy + i * kWidth, x.data + i * stride, static_cast<size_t>(Values ? k : lines) * sizeof(T));
  pack_tile<Values, Transposed, Parts>(
      Values ? MatrixView<T>{copy, kWidth, 1} : MatrixView<T>{copy, 1, kWidth}, out, left);
}

/// A quarter of the tile that x begins with, or, as the first, all of one that is not whole: of `lines` lines
/// and k values of K or more.
template <bool Values, bool Transposed, int64_t Parts, class T, class V>
HWY_INLINE void pack_quarter_within(MatrixView<T> x, int64_t lines, int64_t k, int64_t quarter, float* out,
                                    V& left) {
  if (lines >= kAmxLines && k >= kAmxDepth) {
    pack_quarter<Values, Transposed, Parts>(x, quarter, out, left);
  } else if (quarter == 0) {
    V more = hn::Zero(Tag<float>());  // whose address is taken
    pack_part_of_tile<Values, Transposed, Parts>(x, HWY_MIN(kAmxLines, lines), HWY_MIN(kAmxDepth, k), out,
                                                 more);
    left = hn::Add(left, more);
  }
}

/// The tiles of the first 16 of `lines` lines, one after the other.
template <bool Values, bool Transposed, int64_t Parts, class T, class V>
HWY_INLINE void pack_group(MatrixView<T> x, int64_t lines, int64_t k, float* out, V& left) {
  for (int64_t p = 0; p < k; p += kAmxDepth, out += Parts * kTilePairs) {
    if (lines >= kAmxLines && k - p >= kAmxDepth)
      pack_tile<Values, Transposed, Parts>(x.at(0, p), out, left);
    else
      pack_part_of_tile<Values, Transposed, Parts>(x.at(0, p), HWY_MIN(kAmxLines, lines),
                                                   HWY_MIN(kAmxDepth, k - p), out, left);
  }
}

/// All groups of 16 lines, one after the other.
template <bool Values, bool Transposed, int64_t Parts, class T, class V>
HWY_INLINE void pack_groups(MatrixView<T> x, int64_t lines, int64_t k, float* out, V& left) {
  const int64_t group = ceil_divide(k, kAmxDepth) * Parts * kTilePairs;
  for (int64_t i = 0; i < lines; i += kAmxLines, out += group)
    pack_group<Values, Transposed, Parts>(x.at(i, 0), lines - i, k, out, left);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
