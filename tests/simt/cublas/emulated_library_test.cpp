// The library of products on the emulated device asks for what a GPU's does.
#include <gtest/gtest.h>

#include <heed/kernels/cuda/gemm/gemm.h>
#include <heed/kernels/simt/host/emulator.h>

#include "../device_buffer.h"
#include "../device_test.h"

namespace heed::cuda {
namespace {

using heed::testing::DeviceBuffer;

// [2, k] by [8, k] and a bias, `offset` elements past a 16-byte boundary.
template <class T>
std::string refusal(int64_t k, size_t offset) {
  const DeviceBuffer<T> a(std::vector<T>(32)), b(std::vector<T>(128)), bias(std::vector<T>(8), offset), c(16);
  return heed::testing::message_of<emulator::Error>([&] {
    const kernels::Gemm<T> product{.a = a.data(),
                                   .b = b.data(),
                                   .c = c.data(),
                                   .m = 2,
                                   .n = 8,
                                   .k = k,
                                   .lda = 16,
                                   .ldb = 16,
                                   .ldc = 8,
                                   .transpose_b = true};
    multiply_by_library("linear_forward", FusedGemm<T>{product, bias.data()});
    synchronize(0);
  });
}

TEST(EmulatedLibrary, ReadsABiasSixteenBytesAtATime) {
  EXPECT_EQ(refusal<float>(16, 0), "nothing thrown");
  EXPECT_EQ(refusal<bfloat16>(16, 0), "nothing thrown");
  const std::string message = "misaligned address: the bias of a product is read 16 bytes at a time";
  EXPECT_NE(refusal<float>(16, 1).find(message), std::string::npos);
  EXPECT_NE(refusal<bfloat16>(16, 1).find(message), std::string::npos);
}

TEST(EmulatedLibrary, TakesNoEmptyMatrix) {
  EXPECT_NE(refusal<float>(0, 0).find("a matrix of a product is empty"), std::string::npos);
}

}  // namespace
}  // namespace heed::cuda
