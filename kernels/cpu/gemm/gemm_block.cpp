#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/gemm/gemm_block.cpp"

#include <unistd.h>

#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/gemm/gemm_dot-inl.h>
#include <heed/kernels/cpu/gemm/gemm_micro-inl.h>
#include <heed/kernels/cpu/gemm/gemm_pack-inl.h>

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
constexpr int64_t kMaxGroups = kPanelBytes / (kPanel<T> * int64_t{sizeof(accumulator_t<T>)});

template <class T, int64_t Group>
HWY_INLINE GemmGeometry geometry() {
  return {kMicroRows,    kPackedRows<accumulator_t<T>>,
          kPanel<T>,     Group,
          kMaxGroups<T>, kNarrow && cache_ways() < kHighAssociativity};
}

/// c = alpha a b + added for one piece of K.
template <int64_t Group, class T, class A = accumulator_t<T>>
HWY_INLINE void gemm_piece(const GemmBlock<T>& block, const RowPanels& panels, int64_t first, int64_t groups,
                           Addend<A> added) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>())), width = kMicroVectors * lanes;
  const int64_t k = HWY_MIN(groups * Group, block.k - first * Group);
  const MatrixView<T> a = block.a.at(0, first * Group);
  const bool transposed = a.column_stride != 1;
  const A* rows = block.a_buffer;
  int64_t stride = groups, panel_stride = 0;  // between panels of kMicroRows, where they have a stride
  if (!rows) {
    rows = reinterpret_cast<const A*>(a.data);
    stride = transposed ? a.column_stride : a.row_stride / Group;
  } else if (transposed) {
    pack_a<Group>(a, panels, block.a_rows, k, block.a_buffer);
    stride = kPackedRows<A>;
    panel_stride = groups * kPackedRows<A>;
  } else {
    copy_rows<Group>(a, block.rows, k, block.a_buffer);
  }
  const bool packs_b = block.b_buffer != nullptr, in_place = block.b_stride != 0 && !packs_b;
  if (packs_b)
    pack_b<1>(MatrixView<A>{block.b + first * block.b_stride, block.b_stride, 1}, k, block.cols,
              block.b_buffer);
  const A* const columns = packs_b ? block.b_buffer : block.b;
  const int64_t before = packs_b ? 0 : first, packed_groups = packs_b ? groups : group_count(block.k, Group);
  for (int64_t j = 0; j < block.cols; j += width) {
    const int64_t cols = HWY_MIN(width, block.cols - j), vectors = cols > lanes ? 2 : 1;
    const int64_t b_stride = in_place ? block.b_stride : vectors * lanes;
    const A* b = columns + (in_place ? j : j * packed_groups) + before * b_stride;
    for (int64_t i = 0; i < panels.count; ++i) {
      const A* panel = rows + (panel_stride ? i * panel_stride : panels.begin[i] * (transposed ? 1 : stride));
      A* c = block.c + panels.begin[i] * block.ldc + j;
      choose_micro<A, Group == 2>(transposed, vectors, panels.rows(i))({.a = panel,
                                                                        .a_stride = stride,
                                                                        .b = b,
                                                                        .b_stride = b_stride,
                                                                        .c = c,
                                                                        .ldc = block.ldc,
                                                                        .k = groups,
                                                                        .cols = cols,
                                                                        .alpha = block.alpha,
                                                                        .added = added.at(panels.begin[i], j),
                                                                        .nontemporal = block.nontemporal,
                                                                        .b_in_cache = block.b_in_cache});
    }
  }
}

template <int64_t Group, class T>
HWY_INLINE void gemm_block(const GemmBlock<T>& block) {
  const RowPanels panels(block.rows);
  const int64_t groups = group_count(block.k, Group), most = kMaxGroups<T>,
                pieces = ceil_divide(groups, most);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = i * groups / pieces, end = (i + 1) * groups / pieces;
    const Addend<accumulator_t<T>> before{block.c, block.ldc};
    gemm_piece<Group>(block, panels, begin, end - begin, i == 0 ? block.added : before);
  }
  if (block.nontemporal) hwy::FlushStream();
}

void gemm_dots_f32(const GemmDots<float>& args) { gemm_dots(args); }
void gemm_dots_f64(const GemmDots<double>& args) { gemm_dots(args); }
void gemm_dots_bf16(const GemmDots<bfloat16>& args) { gemm_dots(args); }

#define HEED_DEFINE(T, Group, suffix, dots)                                                              \
  void pack_b_##suffix(MatrixView<T> b, int64_t k, int64_t cols, accumulator_t<T>* out) {                \
    pack_b<Group>(b, k, cols, out);                                                                      \
  }                                                                                                      \
  void gemm_block_##suffix(const GemmBlock<T>& block) { gemm_block<Group>(block); }                      \
  const GemmFunctions<T>& functions_##suffix() {                                                         \
    static const GemmFunctions<T> all{geometry<T, Group>(), pack_b_##suffix, gemm_block_##suffix, dots}; \
    return all;                                                                                          \
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
