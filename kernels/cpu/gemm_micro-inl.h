// The innermost part of the matrix product: a few rows by one or two vectors of columns, all in registers.
#include <utility>

#include <heed/kernels/cpu/simd.h>

#if defined(HEED_KERNELS_CPU_GEMM_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_GEMM_MICRO_INL_H_
#undef HEED_KERNELS_CPU_GEMM_MICRO_INL_H_
#else
#define HEED_KERNELS_CPU_GEMM_MICRO_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Rows of a full block: with two vectors a row, the accumulators and operands fill 16 or 32 registers.
constexpr int64_t kMicroRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;
constexpr int64_t kMicroVectors = 2;

/// One block of C. A is read as a[r * stride + p], or, packed, as a[p * Rows + r]; B is packed.
template <class A>
struct MicroArgs {
  const A* a;
  int64_t stride;  // between the rows of A; unused when packed
  const A* b;
  A* c;
  int64_t ldc, k, cols;
  A alpha;
  bool accumulate;
};

/// alpha * sum (+ c) for the first n columns of one vector.
template <class D, class A>
HWY_INLINE void micro_store(D d, Vec<D> sum, const MicroArgs<A>& args, A* c, int64_t n) {
  const auto scaled = hn::Mul(sum, hn::Set(d, args.alpha));
  if (n >= static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(args.accumulate ? hn::Add(scaled, hn::LoadU(d, c)) : scaled, d, c);
  } else if (n > 0) {
    store_n(args.accumulate ? hn::Add(scaled, load_n(d, c, n)) : scaled, d, c, n);
  }
}

/// Folds over R instead of loops: the accumulators must become registers, and only unrolled code gets there.
template <bool Packed, int64_t Vectors, class A, size_t... R>
HWY_INLINE void micro_block(const MicroArgs<A>& args, std::index_sequence<R...>) {
  constexpr int64_t kRows = sizeof...(R);
  const Tag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const A* HWY_RESTRICT a = args.a;
  const A* HWY_RESTRICT b = args.b;
  Vec<Tag<A>> left[kRows], right[kRows], x;
  ((left[R] = hn::Zero(d), right[R] = hn::Zero(d)), ...);
  for (int64_t p = args.k; p > 0; --p) {
    const auto b0 = hn::LoadU(d, b);
    const auto b1 = Vectors == 2 ? hn::LoadU(d, b + lanes) : b0;
    ((x = hn::Set(d, Packed ? a[R] : a[static_cast<int64_t>(R) * args.stride]),
      left[R] = hn::MulAdd(x, b0, left[R]), right[R] = Vectors == 2 ? hn::MulAdd(x, b1, right[R]) : right[R]),
     ...);
    a += Packed ? kRows : 1;
    b += Vectors * lanes;
  }
  ((micro_store(d, left[R], args, args.c + static_cast<int64_t>(R) * args.ldc, args.cols),
    micro_store(d, right[R], args, args.c + static_cast<int64_t>(R) * args.ldc + lanes,
                Vectors == 2 ? args.cols - lanes : 0)),
   ...);
}

template <bool Packed, int64_t Vectors, int64_t Rows, class A>
void micro(const MicroArgs<A>& args) {
  micro_block<Packed, Vectors>(args, std::make_index_sequence<Rows>());
}

template <class A>
using Micro = void (*)(const MicroArgs<A>&);

/// micro with 1 … kMicroRows rows.
template <class A, bool Packed, int64_t Vectors, size_t... R>
HWY_INLINE Micro<A> micro_of_rows(int64_t rows, std::index_sequence<R...>) {
  static constexpr Micro<A> table[] = {micro<Packed, Vectors, R + 1, A>...};
  return table[rows - 1];
}

template <class A>
HWY_INLINE Micro<A> choose_micro(bool packed, int64_t vectors, int64_t rows) {
  const std::make_index_sequence<kMicroRows> all;
  if (packed) {
    return vectors == 2 ? micro_of_rows<A, true, 2>(rows, all) : micro_of_rows<A, true, 1>(rows, all);
  }
  return vectors == 2 ? micro_of_rows<A, false, 2>(rows, all) : micro_of_rows<A, false, 1>(rows, all);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
