// The innermost part of the matrix product: a few rows by one or two vectors of columns, all in registers.
#include <utility>

#include <hwy/cache_control.h>

#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/simd/simd.h>

#if defined(HEED_KERNELS_CPU_GEMM_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_GEMM_MICRO_INL_H_
#undef HEED_KERNELS_CPU_GEMM_MICRO_INL_H_
#else
#define HEED_KERNELS_CPU_GEMM_MICRO_INL_H_
#endif

#include <heed/kernels/cpu/simd/pairs-inl.h>

#if HWY_COMPILER_CLANG
#define HEED_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define HEED_UNROLL_4 _Pragma("GCC unroll 4")
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Rows of a full block: with two vectors a row, the accumulators and operands fill 16 or 32 registers.
constexpr int64_t kMicroRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;
constexpr int64_t kMicroVectors = 2;
/// How far ahead of a row's product its panel of B is fetched.
constexpr int64_t kAheadBytes = 2048;

/// Elements between the columns of a packed panel of A: kMicroRows in whole vectors.
template <class A>
constexpr int64_t kPackedRows =
    (kMicroRows + hn::MaxLanes(Tag<A>()) - 1) / hn::MaxLanes(Tag<A>()) * hn::MaxLanes(Tag<A>());

/// One block of C. A is read as a[r * a_stride + p], or, transposed, as a[p * a_stride + r].
template <class A>
struct MicroArgs {
  const A* a;
  int64_t a_stride;
  const A* b;
  int64_t b_stride;  // between the rows of B
  A* c;
  int64_t ldc, k, cols;
  A alpha;
  Addend<A> added;   // which may be c
  bool nontemporal;  // how c is stored, where it is a whole block
  bool b_in_cache;   // a single row's product prefetches each line of it
};

/// c = scaled (+ added), for the first n columns of one vector.
template <class D, class A>
HWY_INLINE void micro_store_n(D d, Vec<D> scaled, const A* added, A* c, int64_t n) {
  if (n <= 0) return;
  n = HWY_MIN(n, static_cast<int64_t>(hn::Lanes(d)));
  store_n(added ? hn::Add(scaled, load_n(d, added, n)) : scaled, d, c, n);
}

template <int64_t Vectors, class D, class A>
HWY_INLINE void micro_store_nontemporal(D d, Vec<D> left, Vec<D> right, A* c) {
  hn::Stream(left, d, c);
  if constexpr (Vectors == 2) hn::Stream(right, d, c + hn::Lanes(d));
}

/// Folds over R instead of loops: the accumulators must become registers, and only unrolled code gets there.
template <bool Transposed, int64_t Vectors, bool Pairs, class A, size_t... R>
HWY_INLINE void micro_block(const MicroArgs<A>& args, std::index_sequence<R...>) {
  const Tag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const A* HWY_RESTRICT a = args.a;
  const A* HWY_RESTRICT b = args.b;
  const int64_t row = Transposed ? 1 : args.a_stride, step = Transposed ? args.a_stride : 1;
  const int64_t b_step = args.b_stride;
  // C is often new memory, which would be waited for at the end.
  if (!args.nontemporal) {
    ((hwy::Prefetch(args.c + static_cast<int64_t>(R) * args.ldc),
      hwy::Prefetch(args.c + static_cast<int64_t>(R) * args.ldc + (Vectors - 1) * lanes)),
     ...);
  }
  Vec<Tag<A>> left[sizeof...(R)], right[sizeof...(R)], x;
  ((left[R] = hn::Zero(d), right[R] = hn::Zero(d)), ...);
  HEED_UNROLL_4 for (int64_t p = args.k; p > 0; --p) {
    const auto b0 = hn::LoadU(d, b);
    const auto b1 = Vectors == 2 ? hn::LoadU(d, b + lanes) : b0;
    ((x = broadcast(d, a + static_cast<int64_t>(R) * row), left[R] = multiply_add<Pairs>(x, b0, left[R]),
      right[R] = Vectors == 2 ? multiply_add<Pairs>(x, b1, right[R]) : right[R]),
     ...);
    a += step;
    b += b_step;
  }
  A* const c = args.c;
  const int64_t ldc = args.ldc, cols = args.cols;
  const Addend<A> added = args.added;
  if (args.alpha != 1) {
    const auto alpha = hn::Set(d, args.alpha);
    ((left[R] = hn::Mul(left[R], alpha), right[R] = hn::Mul(right[R], alpha)), ...);
  }
  if (cols < Vectors * lanes) {
    ((micro_store_n(d, left[R], added.at(R, 0).data, c + static_cast<int64_t>(R) * ldc, cols),
      micro_store_n(d, right[R], added.at(R, lanes).data, c + static_cast<int64_t>(R) * ldc + lanes,
                    cols - lanes)),
     ...);
    return;
  }
  if (added.data) {
    ((left[R] = hn::Add(left[R], hn::LoadU(d, added.at(R, 0).data))), ...);
    if (Vectors == 2) ((right[R] = hn::Add(right[R], hn::LoadU(d, added.at(R, lanes).data))), ...);
  }
  if (args.nontemporal) {
    ((micro_store_nontemporal<Vectors>(d, left[R], right[R], c + static_cast<int64_t>(R) * ldc)), ...);
    return;
  }
  ((hn::StoreU(left[R], d, c + static_cast<int64_t>(R) * ldc)), ...);
  if (Vectors == 2) ((hn::StoreU(right[R], d, c + static_cast<int64_t>(R) * ldc + lanes)), ...);
}

/// One row alone would wait for its own sums: four of each, over every fourth p.
template <int64_t Vectors, bool Pairs, class A, size_t... S>
HWY_INLINE void micro_row(const MicroArgs<A>& args, std::index_sequence<S...>) {
  const Tag<A> d;
  constexpr int64_t kSums = sizeof...(S), kAhead = kAheadBytes / int64_t{sizeof(A)};
  constexpr bool kTwoLines = Vectors == 2 && hn::MaxLanes(d) * sizeof(A) == 64;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = args.b_stride;
  const A* HWY_RESTRICT a = args.a;
  const A* HWY_RESTRICT b = args.b;
  Vec<Tag<A>> left[kSums], right[kSums], x;
  ((left[S] = right[S] = hn::Zero(d)), ...);
  const auto add = [&](size_t s) HWY_ATTR {
    const A* const row = b + static_cast<int64_t>(s) * width;
    x = broadcast(d, a + s);
    left[s] = multiply_add<Pairs>(x, hn::LoadU(d, row), left[s]);
    if (Vectors == 2) right[s] = multiply_add<Pairs>(x, hn::LoadU(d, row + lanes), right[s]);
  };
  int64_t p = args.k;
  const auto fetch_and_add = [&](size_t s) HWY_ATTR {
    const A* const ahead = b + static_cast<int64_t>(s) * width + kAhead;
    hwy::Prefetch(ahead);
    if (kTwoLines) hwy::Prefetch(ahead + lanes);
    add(s);
  };
  if (args.b_in_cache) {
    for (; p >= kSums; p -= kSums, a += kSums, b += kSums * width) (fetch_and_add(S), ...);
  }
  for (; p >= kSums; p -= kSums, a += kSums, b += kSums * width) {
    hwy::Prefetch(b + kAhead);
    (add(S), ...);
  }
  for (; p > 0; --p, ++a, b += width) add(0);
  const auto alpha = hn::Set(d, args.alpha);
  const auto total = [&](const Vec<Tag<A>>* sum) HWY_ATTR {
    return hn::Mul(alpha, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
  };
  micro_store_n(d, total(left), args.added.data, args.c, args.cols);
  if (Vectors == 2)
    micro_store_n(d, total(right), args.added.at(0, lanes).data, args.c + lanes, args.cols - lanes);
}

template <bool Transposed, int64_t Vectors, bool Pairs, int64_t Rows, class A>
void micro(const MicroArgs<A>& args) {
  if constexpr (!Transposed && Rows == 1)
    micro_row<Vectors, Pairs>(args, std::make_index_sequence<4>());
  else
    micro_block<Transposed, Vectors, Pairs>(args, std::make_index_sequence<Rows>());
}

template <class A>
using Micro = void (*)(const MicroArgs<A>&);

/// micro with 1 … kMicroRows rows.
template <class A, bool Transposed, int64_t Vectors, bool Pairs, size_t... R>
HWY_INLINE Micro<A> micro_of_rows(int64_t rows, std::index_sequence<R...>) {
  static constexpr Micro<A> table[] = {micro<Transposed, Vectors, Pairs, R + 1, A>...};
  return table[rows - 1];
}

template <class A, bool Pairs>
HWY_INLINE Micro<A> choose_micro(bool transposed, int64_t vectors, int64_t rows) {
  const std::make_index_sequence<kMicroRows> all;
  if (transposed) {
    return vectors == 2 ? micro_of_rows<A, true, 2, Pairs>(rows, all)
                        : micro_of_rows<A, true, 1, Pairs>(rows, all);
  }
  return vectors == 2 ? micro_of_rows<A, false, 2, Pairs>(rows, all)
                      : micro_of_rows<A, false, 1, Pairs>(rows, all);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
