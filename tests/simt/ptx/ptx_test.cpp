// One PTX instruction at a time against its definition, on operands for which every result is exact: the
// emulator and a GPU must give the same bits. The same program is built for either.
#include <cstdint>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include "../device_buffer.h"
#include "ptx_kernels.h"
#ifdef HEED_TEST_EMULATED
#include <heed/kernels/simt/host/emulator.h>
#endif

namespace heed::testing {
namespace {

class Ptx : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  }
};

// What `count` matrices of eight rows of eight elements give to the lanes.
void expect_elements(const std::vector<uint32_t>& got, int count, bool transposed,
                     const std::vector<uint16_t>& rows) {
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < count; ++m) {
      const auto element = [&](int second) -> uint32_t {
        const int major = lane / 4, minor = lane % 4 * 2 + second;
        return rows[static_cast<size_t>(transposed ? (8 * m + minor) * 8 + major
                                                   : (8 * m + major) * 8 + minor)];
      };
      EXPECT_EQ(got[static_cast<size_t>(lane * count + m)], element(0) | element(1) << 16)
          << "x" << count << (transposed ? " trans" : "") << " lane " << lane << " matrix " << m;
    }
}

TEST_F(Ptx, LdmatrixGivesEachLaneItsElements) {
  std::vector<uint16_t> rows(32 * 8);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(1000 + i);
  const DeviceBuffer<uint16_t> in(rows);
  for (bool transposed : {false, true}) {
    for (int count : {1, 2, 4}) {
      const DeviceBuffer<uint32_t> out(static_cast<size_t>(32 * count));
      run_ldmatrix(count, transposed, in.data(), out.data());
      expect_elements(out.get(), count, transposed, rows);
    }
    const DeviceBuffer<uint32_t> out(32 * 4);
    run_turned_ldmatrix(transposed, in.data(), out.data());
    expect_elements(out.get(), 4, transposed, rows);
  }
}

TEST_F(Ptx, OpaqueNumbersAreTheSame) {
  std::vector<int> numbers(32);
  for (int i = 0; i < 32; ++i) numbers[static_cast<size_t>(i)] = (i - 16) * 100000001;
  const DeviceBuffer<int> in(numbers), out(32);
  run_opaque(in.data(), out.data());
  EXPECT_EQ(out.get(), numbers);
}

int small(int i, int salt) { return (i * 37 + salt * 11) % 9 - 4; }

uint16_t encode(int value, bool is_bf16) {
  const float f = static_cast<float>(value);
  if (is_bf16) return static_cast<__nv_bfloat16_raw>(__float2bfloat16(f)).x;
  return static_cast<__half_raw>(__float2half(f)).x;
}

struct Product {
  std::vector<uint16_t> a, b;
  std::vector<float> d, expected;
};

Product make_product(bool is_bf16) {
  Product p;
  for (int i = 0; i < 16 * 16; ++i) p.a.push_back(encode(small(i, 1), is_bf16));
  for (int i = 0; i < 16 * 8; ++i) p.b.push_back(encode(small(i, 2), is_bf16));
  for (int i = 0; i < 16 * 8; ++i) p.d.push_back(static_cast<float>(small(i, 3)));
  for (int row = 0; row < 16; ++row)
    for (int col = 0; col < 8; ++col) {
      int sum = small(row * 8 + col, 3);
      for (int k = 0; k < 16; ++k) sum += small(row * 16 + k, 1) * small(k * 8 + col, 2);
      p.expected.push_back(static_cast<float>(sum));
    }
  return p;
}

TEST_F(Ptx, MmaMultipliesFragmentsInBothTypes) {
  for (bool is_bf16 : {true, false}) {
    const Product p = make_product(is_bf16);
    const DeviceBuffer<uint16_t> a(p.a), b(p.b);
    const DeviceBuffer<float> d(p.d);
    run_mma(is_bf16, a.data(), b.data(), d.data());
    EXPECT_EQ(d.get(), p.expected) << (is_bf16 ? "bf16" : "f16");
  }
}

TEST_F(Ptx, LdmatrixFitsMma) {
  const Product p = make_product(true);
  const DeviceBuffer<uint16_t> a(p.a), b(p.b);
  const DeviceBuffer<float> d(p.d);
  run_mma_after_ldmatrix(a.data(), b.data(), d.data());
  EXPECT_EQ(d.get(), p.expected);
}

TEST_F(Ptx, CpAsyncCopiesOrFillsWithZeros) {
  for (int bytes : {4, 8, 16}) {
    std::vector<unsigned char> values(static_cast<size_t>(32 * bytes));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned char>(i * 7 + 1);
    const DeviceBuffer<unsigned char> in(values), out(values.size());
    run_cp_async(bytes, 21, in.data(), out.data());
    for (size_t i = static_cast<size_t>(21 * bytes); i < values.size(); ++i) values[i] = 0;
    EXPECT_EQ(out.get(), values) << bytes;
  }
}

TEST_F(Ptx, Exp2OfIntegersIsExact) {
  std::vector<float> exponents, powers;
  for (int i = -16; i < 16; ++i) {
    exponents.push_back(static_cast<float>(i));
    powers.push_back(i < 0 ? 1.0f / static_cast<float>(1 << -i) : static_cast<float>(1 << i));
  }
  const DeviceBuffer<float> in(exponents), out(exponents.size());
  run_exp2(in.data(), out.data());
  EXPECT_EQ(out.get(), powers);
}

#ifdef HEED_TEST_EMULATED
TEST_F(Ptx, BankConflictsOfLdmatrixAreCounted) {
  const DeviceBuffer<uint32_t> out(32);
  const auto wavefronts = [&](bool swizzled) {
    emulator::stats() = {};
    run_strided_ldmatrix(swizzled, out.data());
    EXPECT_EQ(emulator::stats().ldmatrix_phases, 1u);
    return emulator::stats().ldmatrix_wavefronts;
  };
  EXPECT_EQ(wavefronts(false), 8u);
  EXPECT_EQ(wavefronts(true), 1u);
}
#endif

}  // namespace
}  // namespace heed::testing
