#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/gemm/gemm_tile.cpp"

#include <unistd.h>

#include <heed/kernels/cpu/gemm/gemm_dot-inl.h>
#include <heed/kernels/cpu/gemm/gemm_micro-inl.h>
#include <heed/kernels/cpu/gemm/gemm_pack-inl.h>
#include <heed/kernels/cpu/gemm/gemm_tile.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// With AVX2 a panel of B leaves room in a 32 KiB first-level cache for the rows of A. With AVX-512 it
/// streams from the second level, a vector in twelve multiply-adds, and longer pieces of K touch C less
/// often.
constexpr int64_t kPanelBytes = HWY_TARGET == HWY_AVX3 ? 65536 : 24576;
/// A line of a panel is used up by twelve multiply-adds: in six cycles with AVX2, in twelve by the processors
/// with AVX-512 whose first-level cache has few ways, which leaves them time to read rows where they lie.
constexpr bool kNarrow = HWY_TARGET != HWY_AVX3;
template <class T>
constexpr int64_t kPanel = hn::MaxLanes(Tag<T>()) * kMicroVectors;
template <class T>
constexpr int64_t kMostSteps = kPanelBytes / (kPanel<T> * int64_t{sizeof(accumulator_t<T>)});

template <class T, int64_t Step>
HWY_INLINE GemmGeometry geometry() {
  return {kMicroRows,    kPackedRows<accumulator_t<T>>,      kPanel<T>, Step,
          kMostSteps<T>, kNarrow && cache_ways() < kManyWays};
}

/// c = alpha a b + added for one piece of K.
template <int64_t Step, class T, class A = accumulator_t<T>>
HWY_INLINE void gemm_piece(const GemmTile<T>& tile, const RowPanels& panels, int64_t first, int64_t steps,
                           Addend<A> added) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>())), width = kMicroVectors * lanes;
  const int64_t k = HWY_MIN(steps * Step, tile.k - first * Step);
  const MatrixView<T> a = tile.a.at(0, first * Step);
  const bool transposed = a.column_stride != 1;
  const A* rows = tile.a_buffer;
  int64_t stride = steps, panel_stride = 0;  // between panels of kMicroRows, where they have a stride
  if (!rows) {
    rows = reinterpret_cast<const A*>(a.data);
    stride = transposed ? a.column_stride : a.row_stride / Step;
  } else if (transposed) {
    pack_a<Step>(a, panels, tile.a_rows, k, tile.a_buffer);
    stride = kPackedRows<A>;
    panel_stride = steps * kPackedRows<A>;
  } else {
    copy_rows<Step>(a, tile.rows, k, tile.a_buffer);
  }
  const bool packs_b = tile.b_buffer != nullptr, in_place = tile.b_stride != 0 && !packs_b;
  if (packs_b)
    pack_b<1>(MatrixView<A>{tile.b + first * tile.b_stride, tile.b_stride, 1}, k, tile.cols, tile.b_buffer);
  const A* const columns = packs_b ? tile.b_buffer : tile.b;
  const int64_t before = packs_b ? 0 : first, packed_steps = packs_b ? steps : step_count(tile.k, Step);
  for (int64_t j = 0; j < tile.cols; j += width) {
    const int64_t cols = HWY_MIN(width, tile.cols - j), vectors = cols > lanes ? 2 : 1;
    const int64_t b_stride = in_place ? tile.b_stride : vectors * lanes;
    const A* b = columns + (in_place ? j : j * packed_steps) + before * b_stride;
    for (int64_t i = 0; i < panels.count; ++i) {
      const A* panel = rows + (panel_stride ? i * panel_stride : panels.begin[i] * (transposed ? 1 : stride));
      A* c = tile.c + panels.begin[i] * tile.ldc + j;
      choose_micro<A, Step == 2>(transposed, vectors, panels.rows(i))(
          {panel, stride, b, b_stride, c, tile.ldc, steps, cols, tile.alpha, added.at(panels.begin[i], j),
           tile.streamed, tile.near});
    }
  }
}

template <int64_t Step, class T>
HWY_INLINE void gemm_tile(const GemmTile<T>& tile) {
  const RowPanels panels(tile.rows);
  const int64_t steps = step_count(tile.k, Step), most = kMostSteps<T>, pieces = ceil_divide(steps, most);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = i * steps / pieces, end = (i + 1) * steps / pieces;
    const Addend<accumulator_t<T>> before{tile.c, tile.ldc};
    gemm_piece<Step>(tile, panels, begin, end - begin, i == 0 ? tile.added : before);
  }
  if (tile.streamed) hwy::FlushStream();
}

void gemm_dots_f32(const GemmDots<float>& args) { gemm_dots(args); }
void gemm_dots_f64(const GemmDots<double>& args) { gemm_dots(args); }
void gemm_dots_bf16(const GemmDots<bfloat16>& args) { gemm_dots(args); }

#define HEED_DEFINE(T, Step, suffix, dots)                                                             \
  void pack_b_##suffix(MatrixView<T> b, int64_t k, int64_t cols, accumulator_t<T>* out) {              \
    pack_b<Step>(b, k, cols, out);                                                                     \
  }                                                                                                    \
  void gemm_tile_##suffix(const GemmTile<T>& tile) { gemm_tile<Step>(tile); }                          \
  const GemmFunctions<T>& functions_##suffix() {                                                       \
    static const GemmFunctions<T> all{geometry<T, Step>(), pack_b_##suffix, gemm_tile_##suffix, dots}; \
    return all;                                                                                        \
  }
HEED_DEFINE(float, 1, f32, gemm_dots_f32)
HEED_DEFINE(double, 1, f64, gemm_dots_f64)
HEED_DEFINE(bfloat16, 1, bf16, gemm_dots_bf16)
HEED_DEFINE(bfloat16, kHasPairs ? 2 : 1, pairs, gemm_dots_bf16)
#undef HEED_DEFINE

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

int64_t cache_ways() {
#ifdef _SC_LEVEL1_DCACHE_ASSOC
  static const int64_t ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
  return ways;
#else
  return 0;
#endif
}

HWY_EXPORT(functions_f32);
HWY_EXPORT(functions_f64);
HWY_EXPORT(functions_bf16);
HWY_EXPORT(functions_pairs);

template <>
const GemmFunctions<float>& gemm_functions() {
  return HEED_SIMD(functions_f32)();
}
template <>
const GemmFunctions<double>& gemm_functions() {
  return HEED_SIMD(functions_f64)();
}
template <>
const GemmFunctions<bfloat16>& gemm_functions() {
  return has_bf16_dot() ? HEED_SIMD(functions_pairs)() : HEED_SIMD(functions_bf16)();
}

}  // namespace heed::cpu
#endif
