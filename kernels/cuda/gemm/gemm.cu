#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/gemm/gemm.h>

namespace heed::cuda {
namespace {

// y = x + bias in every row. Operand 1 is the column.
template <class T>
struct AddBiasOp {
  static constexpr int kOperands = 2, kWidth = 1;
  const float* x;  // null: zeros
  const T* bias;
  T* y;  // may be x

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[2], unsigned) const {
    y[at[0]] = T((x == nullptr ? 0.0f : x[at[0]]) + static_cast<float>(bias[at[1]]));
  }
};

template <class T>
void add_bias(const char* what, const float* x, const T* bias, T* y, int64_t rows, int64_t cols) {
  Strided<2> index{};
  index.rank = 2;
  index.sizes[0] = rows, index.sizes[1] = cols;
  index.strides[0][0] = cols, index.strides[0][1] = 1;
  index.strides[1][1] = 1;
  elementwise(what, AddBiasOp<T>{x, bias, y}, index);
}

// A sum of no terms, before the bias.
template <class T, class C>
void clear(const char* what, const kernels::Gemm<T, C>& p) {
  for (int64_t i = 0; i < p.batch; ++i)
    check(cudaMemset2DAsync(p.c + i * p.stride_c, static_cast<size_t>(p.ldc) * sizeof(C), 0,
                            static_cast<size_t>(p.n) * sizeof(C), static_cast<size_t>(p.m), current_stream()),
          what);
}

bool is_aligned(const void* bias) { return reinterpret_cast<uintptr_t>(bias) % kBiasAlignment == 0; }

// The product, then the bias. Sums stay in f32 until it is added.
template <class T>
void multiply_then_add(const char* what, const FusedGemm<T>& args) {
  const kernels::Gemm<T>& p = args.product;
  constexpr bool kInPlace = std::is_same_v<T, float>;
  const Scratch scratch(kInPlace ? 0 : static_cast<size_t>(p.m * p.n) * sizeof(float));
  float* sums = scratch.as<float>();
  if constexpr (kInPlace) sums = p.c;
  multiply_by_library(what, FusedGemm<T, float>{.product = {.a = p.a,
                                                            .b = p.b,
                                                            .c = sums,
                                                            .m = p.m,
                                                            .n = p.n,
                                                            .k = p.k,
                                                            .lda = p.lda,
                                                            .ldb = p.ldb,
                                                            .ldc = p.n,
                                                            .transpose_b = true,
                                                            .alpha = p.alpha},
                                                .bias = nullptr});
  add_bias(what, sums, args.bias, p.c, p.m, p.n);
}

}  // namespace

template <class T, class C>
void multiply(const char* what, const FusedGemm<T, C>& args) {
  const kernels::Gemm<T, C>& p = args.product;
  HEED_ASSERT(args.bias == nullptr || (p.batch == 1 && sizeof(T) == sizeof(C)), what,
              ": a bias does not fit");
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  if constexpr (std::is_same_v<T, C>) {
    if (args.bias != nullptr) {
      if (p.k == 0) return add_bias<T>(what, nullptr, args.bias, p.c, p.m, p.n);
      if (!is_aligned(args.bias) || !multiply_by_library(what, args)) multiply_then_add(what, args);
      return;
    }
  }
  if (p.k > 0)
    multiply_by_library(what, args);
  else if (!p.accumulate)
    clear(what, p);
}

template <class T, class C>
void gemm(const kernels::Gemm<T, C>& args) {
  multiply("gemm", FusedGemm<T, C>{args, nullptr});
}

#define HEED_INSTANTIATE(T, C)                                       \
  template void multiply<T, C>(const char*, const FusedGemm<T, C>&); \
  template void gemm<T, C>(const kernels::Gemm<T, C>&);
HEED_INSTANTIATE(float, float)
HEED_INSTANTIATE(bfloat16, bfloat16)
HEED_INSTANTIATE(bfloat16, float)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda
