// kernels/cuda/gemm/gemm_cublas.cu with a fake cuBLASLt: what it is asked for, and how algorithms are chosen.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cublasLt.h>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/capture.h>
#include <heed/kernels/cuda/gemm/gemm.h>
#include <heed/kernels/runtime.h>

#include "../device_buffer.h"
#include "../device_test.h"
#include "fake_cublaslt.h"

namespace heed::cuda {
namespace {

using namespace heed::testing;

bool timed() {
  const char* value = std::getenv("HEED_CUDA_PLANS");
  return value != nullptr && std::string(value) == "timed";
}

// Small integers, whose products and sums are exact in every type.
template <class T>
std::vector<T> numbers(int64_t count, int seed) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(T(static_cast<float>((i * 7 + seed) % 5 - 2)));
  return values;
}

struct Case {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  int64_t gap = 0;  // between rows and between matrices
  int64_t batch = 1;
  bool accumulate = false, bias = false;
  size_t bias_offset = 0;  // elements past a 16-byte boundary
};

Case with_bias(int64_t m, int64_t n, int64_t k, size_t offset = 0) {
  return {m, n, k, false, true, 0, 1, false, true, offset};
}

template <class T, class C>
void check(const Case& c) {
  const auto width = [&](int64_t columns) { return std::max<int64_t>(columns + c.gap, 1); };
  const int64_t lda = width(c.transpose_a ? c.m : c.k), ldb = width(c.transpose_b ? c.k : c.n),
                ldc = width(c.n);
  const int64_t stride_a = (c.transpose_a ? c.k : c.m) * lda + c.gap,
                stride_b = (c.transpose_b ? c.n : c.k) * ldb + c.gap, stride_c = c.m * ldc + c.gap;
  const std::vector<T> a = numbers<T>(c.batch * stride_a, 1), b = numbers<T>(c.batch * stride_b, 2),
                       bias = numbers<T>(c.n, 3);
  const std::vector<C> start = numbers<C>(c.batch * stride_c, 4);
  const DeviceBuffer<T> device_a(a), device_b(b), device_bias(bias, c.bias_offset);
  const DeviceBuffer<C> device_c(start);
  multiply("product", FusedGemm<T, C>{.product = {.a = device_a.data(),
                                                  .b = device_b.data(),
                                                  .c = device_c.data(),
                                                  .m = c.m,
                                                  .n = c.n,
                                                  .k = c.k,
                                                  .lda = lda,
                                                  .ldb = ldb,
                                                  .ldc = ldc,
                                                  .transpose_a = c.transpose_a,
                                                  .transpose_b = c.transpose_b,
                                                  .batch = c.batch,
                                                  .stride_a = stride_a,
                                                  .stride_b = stride_b,
                                                  .stride_c = stride_c,
                                                  .alpha = 2,
                                                  .accumulate = c.accumulate},
                                      .bias = c.bias ? device_bias.data() : nullptr});
  std::vector<C> expected = start;
  for (int64_t matrix = 0; matrix < c.batch; ++matrix)
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        C& to = expected[static_cast<size_t>(matrix * stride_c + i * ldc + j)];
        float sum = 0;
        for (int64_t k = 0; k < c.k; ++k) {
          const int64_t at = c.transpose_a ? k * lda + i : i * lda + k;
          const int64_t bt = c.transpose_b ? j * ldb + k : k * ldb + j;
          sum += 2 * static_cast<float>(a[static_cast<size_t>(matrix * stride_a + at)]) *
                 static_cast<float>(b[static_cast<size_t>(matrix * stride_b + bt)]);
        }
        if (c.bias) sum += static_cast<float>(bias[static_cast<size_t>(j)]);
        to = C(c.accumulate ? static_cast<float>(to) + sum : sum);
      }
  EXPECT_EQ(bytes_of(device_c.get()), bytes_of(expected)) << "gaps stay as they are";
}

TEST(Cublas, ProductsAreThoseOfPlainLoops) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const bool accumulate : {false, true})
        for (const int64_t batch : {1, 3}) {
          const Case c{4, 3, 5, transpose_a, transpose_b, 2, batch, accumulate};
          check<float, float>(c);
          check<bfloat16, bfloat16>(c);
          check<bfloat16, float>(c);
        }
  check<float, float>(with_bias(4, 3, 5));
  check<bfloat16, bfloat16>(with_bias(4, 3, 5));
}

TEST(Cublas, AnEmptySumIsZeroAndThenTheBias) {
  fake_cublas() = {};
  for (const bool accumulate : {false, true}) check<float, float>({4, 3, 0, false, false, 1, 2, accumulate});
  check<float, float>(with_bias(4, 3, 0));
  check<bfloat16, bfloat16>(with_bias(4, 3, 0, 1));
  EXPECT_EQ(fake_cublas().heuristics, 0) << "cuBLASLt knows no matrices without rows";
}

template <class T>
bool is_fused(const Case& c) {
  fake_cublas().fused = 0;
  check<T, T>(c);
  return fake_cublas().fused > 0;
}

// Fused where the library's kernels can read it, and else added by one of ours.
TEST(Cublas, ABiasMayBeginAnywhere) {
  for (size_t offset = 0; offset < 8; ++offset) {
    EXPECT_EQ(is_fused<float>(with_bias(6, 8, 4, offset)), offset % 4 == 0);
    EXPECT_EQ(is_fused<bfloat16>(with_bias(6, 8, 4, offset)), offset == 0);
    EXPECT_EQ(is_fused<bfloat16>(with_bias(300, 7, 3, offset)), offset == 0);
  }
}

TEST(Cublas, WithoutAnAlgorithmForABiasItIsAddedAfterwards) {
  for (const cublasStatus_t refusal : {CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED}) {
    const int64_t m = refusal == CUBLAS_STATUS_SUCCESS ? 11 : 12;  // shapes that were not planned before
    fake_cublas() = {.adds_bias = false, .refusal = refusal};
    for (int i = 0; i < 3; ++i) {
      check<float, float>(with_bias(m, 5, 7));
      check<bfloat16, bfloat16>(with_bias(m, 5, 7));
    }
    EXPECT_EQ(fake_cublas().heuristics, 4) << "asked once a shape, with the bias and without";
  }
}

// 257 is no bf16 and would be 256; 257 + 1 is one.
TEST(Cublas, ABiasIsAddedBeforeTheSumIsRounded) {
  const DeviceBuffer<bfloat16> a(std::vector<bfloat16>{bfloat16(128.0f), bfloat16(129.0f)}),
      b(std::vector<bfloat16>{bfloat16(1.0f), bfloat16(1.0f)}),
      bias(std::vector<bfloat16>{bfloat16(1.0f)}, 1), c(1);
  multiply("product", FusedGemm<bfloat16>{{.a = a.data(),
                                           .b = b.data(),
                                           .c = c.data(),
                                           .m = 1,
                                           .n = 1,
                                           .k = 2,
                                           .lda = 2,
                                           .ldb = 2,
                                           .ldc = 1,
                                           .transpose_b = true},
                                          bias.data()});
  EXPECT_EQ(static_cast<float>(c.get()[0]), 258.0f);
}

TEST(Cublas, NoAlgorithmAtAllIsADeviceError) {
  fake_cublas() = {.adds_bias = false, .multiplies = false};
  EXPECT_EQ(message_of<DeviceError>([] {
              check<float, float>({13, 2, 3});
            }),
            "product: cuBLASLt has no algorithm for a product of [13, 3] and [3, 2]");
  EXPECT_EQ(message_of<DeviceError>([] { check<float, float>(with_bias(13, 2, 3)); }),
            "product: cuBLASLt has no algorithm for a product of [13, 3] and [3, 2]");
  fake_cublas() = {};
}

TEST(Cublas, AProductOfNothingIsNotAskedFor) {
  fake_cublas() = {};
  const DeviceBuffer<float> a(16), b(16), c(16);
  for (const auto& [m, n, batch] : {std::array<int64_t, 3>{0, 4, 1}, {4, 0, 1}, {4, 4, 0}})
    gemm(kernels::Gemm<float>{a.data(), b.data(), c.data(), m, n, 4, 4, 4, 4, false, false, batch, 0, 0, 0, 1,
                              false});
  EXPECT_EQ(fake_cublas().heuristics, 0);
  EXPECT_TRUE(fake_cublas().used.empty());
}

TEST(Cublas, AShapeIsPlannedOnceAndAddedOnce) {
  fake_cublas() = {};
  const Case c{6, 7, 3, false, false, 1, 2, true};
  for (int i = 0; i < 3; ++i) check<float, float>(c);
  EXPECT_EQ(fake_cublas().heuristics, 1);
  EXPECT_EQ(fake_cublas().reductions, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
      << "no sum whose order depends on which block ends first";
  check<float, float>({6, 7, 3, false, false, 1, 3, true});
  EXPECT_EQ(fake_cublas().heuristics, 2);
}

TEST(Cublas, TheHeuristicChoosesUnlessTimesAreAskedFor) {
  fake_cublas() = {};
  const Case c{5, 2, 8};
  check<float, float>(c);
  const size_t runs = fake_cublas().used.size();
  EXPECT_EQ(runs, timed() ? 3 * 4 + 1 : 1) << "three algorithms, four times each";
  check<float, float>(c);
  ASSERT_EQ(fake_cublas().used.size(), runs + 1);
  EXPECT_EQ(fake_cublas().used[runs - 1], timed() ? kFastest : kFirst);
  EXPECT_EQ(fake_cublas().used[runs], timed() ? kFastest : kFirst);
}

TEST(Cublas, NothingIsTimedWithinACapture) {
  fake_cublas() = {};
  const DeviceBuffer<float> a(numbers<float>(9 * 2, 1)), b(numbers<float>(2 * 9, 2)), c(9 * 9);
  const FusedGemm<float> product{
      {a.data(), b.data(), c.data(), 9, 9, 2, 2, 9, 9, false, false, 1, 0, 0, 0, 1, false}, nullptr};
  const Graph graph(0, make_arena(0), [&] { multiply("product", product); });
  EXPECT_TRUE(fake_cublas().used.empty());
  graph.launch();
  synchronize(0);
  EXPECT_EQ(fake_cublas().used, std::vector<uint64_t>{kFirst});
  multiply("product", product);  // may be timed now
  synchronize(0);
  EXPECT_EQ(fake_cublas().used.back(), timed() ? kFastest : kFirst);
}

}  // namespace
}  // namespace heed::cuda
