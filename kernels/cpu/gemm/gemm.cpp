#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/gemm/gemm.cpp"

#include <algorithm>

#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/gemm/gemm_blocked.h>
#include <heed/kernels/cpu/simd/simd.h>
#include <heed/kernels/gemm.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// c = x (+ c), rounded once.
void round_row(const float* x, bfloat16* c, int64_t count, bool accumulate) {
  const Tag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    store(accumulate ? hn::Add(v, load(d, c + i)) : v, d, c + i);
  }
  if (i == count) return;
  const auto v = load_n(d, x + i, count - i);
  store_n(accumulate ? hn::Add(v, load_n(d, c + i, count - i)) : v, d, c + i, count - i);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HWY_EXPORT(round_row);

constexpr int64_t kSmallProduct = 1 << 20;  // multiply-adds; products of a batch below it are one task each
constexpr int64_t kBatchTask = 1 << 18;     // multiply-adds a task of a batch should have

template <class T, class C>
void check(const kernels::Gemm<T, C>& args) {
  const int64_t a_row = args.transpose_a ? args.m : args.k, b_row = args.transpose_b ? args.k : args.n;
  HEED_ASSERT(args.lda >= a_row && args.ldb >= b_row && args.ldc >= args.n, "gemm: row strides ", args.lda,
              ", ", args.ldb, ", ", args.ldc, " are shorter than rows of ", a_row, ", ", b_row, ", ", args.n);
  HEED_ASSERT(args.batch <= 1 || args.stride_c != 0,
              "gemm: the products of a batch would overwrite each other");
}

/// Rounds finished blocks into a bf16 C.
struct RoundBlocks {
  bfloat16* c;
  int64_t ldc;
  bool accumulate;

  void operator()(const FinishedBlock<float>& block) const {
    const auto round = HEED_SIMD(round_row);
    for (int64_t i = 0; i < block.rows; ++i)
      round(block.data + i * block.ld, c + (block.row + i) * ldc + block.col, block.cols, accumulate);
  }
};

/// A single product, whose blocks `round` rounds if C is not what sums are kept in.
template <class T, class C>
BlockedGemm<T> rounded(const kernels::Gemm<T, C>& args, RoundBlocks& round) {
  BlockedGemm<T> product = blocked(args);
  if constexpr (!std::is_same_v<C, accumulator_t<T>>) {
    round = {args.c, args.ldc, args.accumulate};
    product.output.epilogue = round;
  }
  return product;
}

template <class T, class C>
void multiply(const kernels::Gemm<T, C>& args) {
  if (args.k == 0) {
    if (args.accumulate) return;
    for (int64_t i = 0; i < args.m; ++i) std::fill_n(args.c + i * args.ldc, args.n, C(0.0f));
    return;
  }
  RoundBlocks round;
  gemm_blocked(rounded(args, round));
}

}  // namespace

template <class T, class C>
void gemm(const kernels::Gemm<T, C>& args) {
  if (args.m <= 0 || args.n <= 0 || args.batch <= 0) return;
  check(args);
  const auto one = [&](int64_t i) {
    kernels::Gemm<T, C> single = args;
    single.a += i * args.stride_a;
    single.b += i * args.stride_b;
    single.c += i * args.stride_c;
    multiply(single);
  };
  const int64_t work = std::max<int64_t>(args.m * args.n * args.k, 1);
  if (args.batch > 1 && work < kSmallProduct) {
    parallel_for(args.batch, std::max<int64_t>(kBatchTask / work, 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) one(i);
    });
  } else {
    for (int64_t i = 0; i < args.batch; ++i) one(i);
  }
}

template <class T>
bool gemm_pair(const kernels::Gemm<T, accumulator_t<T>>& first, const kernels::Gemm<T>& second, int64_t tasks,
               FunctionRef<void(int64_t)> task) {
  RoundBlocks round;
  return gemm_blocked_pair(blocked(first), rounded(second, round), tasks, task);
}

template bool gemm_pair<float>(const kernels::Gemm<float>&, const kernels::Gemm<float>&, int64_t,
                               FunctionRef<void(int64_t)>);
template bool gemm_pair<double>(const kernels::Gemm<double>&, const kernels::Gemm<double>&, int64_t,
                                FunctionRef<void(int64_t)>);
template bool gemm_pair<bfloat16>(const kernels::Gemm<bfloat16, float>&, const kernels::Gemm<bfloat16>&,
                                  int64_t, FunctionRef<void(int64_t)>);

template void gemm<float, float>(const kernels::Gemm<float>&);
template void gemm<double, double>(const kernels::Gemm<double>&);
template void gemm<bfloat16, bfloat16>(const kernels::Gemm<bfloat16>&);
template void gemm<bfloat16, float>(const kernels::Gemm<bfloat16, float>&);

}  // namespace heed::cpu
#endif
