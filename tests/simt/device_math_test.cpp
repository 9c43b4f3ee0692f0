// The emulator's scalar functions where CUDA's documentation says more than the obvious.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/kernels/simt/host/host.h>

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

TEST(DeviceMath, BytePermTakesThreeBitsOfEachDigit) {
  EXPECT_EQ(__byte_perm(0x83828180u, 0x87868584u, 0x7531u), 0x87858381u);
  EXPECT_EQ(__byte_perm(0x83828180u, 0x87868584u, 0xfdb9u), 0x87858381u) << "no sign is spread";
  EXPECT_EQ(__byte_perm(0x83828180u, 0x87868584u, 0xabcd0246u), 0x80828486u) << "the upper half is ignored";
}

TEST(DeviceMath, ShiftsWrapAndZerosHaveNoBits) {
  EXPECT_EQ(__funnelshift_l(0x80000001u, 0xau, 32), 0xau);
  EXPECT_EQ(__funnelshift_l(0x80000001u, 0xau, 33), 0x15u);
  EXPECT_EQ(__funnelshift_r(0x80000001u, 0xau, 64), 0x80000001u);
  EXPECT_EQ(__funnelshift_r(0x80000001u, 0xbu, 65), 0xc0000000u);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clzll(0), 64);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffsll(0), 0);
  EXPECT_EQ(__ffs(std::numeric_limits<int>::min()), 32);
}

TEST(DeviceMath, ConversionsToIntegersSaturate) {
  constexpr int kMin = std::numeric_limits<int>::min(), kMax = std::numeric_limits<int>::max();
  for (int (*const convert)(float) : {__float2int_rn, __float2int_rd, __float2int_rz}) {
    EXPECT_EQ(convert(kNan), 0);
    EXPECT_EQ(convert(kInf), kMax);
    EXPECT_EQ(convert(-kInf), kMin);
    EXPECT_EQ(convert(0x1p31f), kMax);
    EXPECT_EQ(convert(-0x1p31f), kMin);
    EXPECT_EQ(convert(-3e9f), kMin);
    EXPECT_EQ(convert(0x1.fffffep30f), 2147483520);
  }
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rn(-1.5f), -2);
  EXPECT_EQ(__float2int_rd(-1.5f), -2);
  EXPECT_EQ(__float2int_rz(-1.5f), -1);
}

TEST(DeviceMath, MaximaPreferNumbersAndThePositiveZero) {
  EXPECT_EQ(max(kNan, 1.0f), 1.0f);
  EXPECT_EQ(max(1.0f, kNan), 1.0f);
  EXPECT_EQ(min(kNan, 1.0f), 1.0f);
  EXPECT_EQ(min(1.0f, kNan), 1.0f);
  EXPECT_TRUE(std::isnan(max(kNan, kNan)));
  EXPECT_FALSE(std::signbit(max(-0.0f, 0.0f)));
  EXPECT_FALSE(std::signbit(max(0.0f, -0.0f)));
  EXPECT_TRUE(std::signbit(min(-0.0f, 0.0f)));
  EXPECT_TRUE(std::signbit(min(0.0f, -0.0f)));
  static_assert(max(3, 5u) == 5u && min(-3, 5) == -3);
}

TEST(DeviceMath, FastFunctionsHaveTheirOwnEdges) {
  EXPECT_EQ(__fdividef(8.0f, 0x1p126f), 0x1p-123f);
  EXPECT_EQ(__fdividef(8.0f, 0x1.8p126f), 0.0f);
  EXPECT_TRUE(std::isnan(__fdividef(kInf, 0x1p127f)));
  EXPECT_TRUE(std::isnan(__powf(-2.0f, 2.0f)));
  EXPECT_TRUE(std::isnan(__powf(0.0f, 0.0f)));
  EXPECT_EQ(__powf(2.0f, 3.0f), 8.0f);
  EXPECT_EQ(__saturatef(kNan), 0.0f);
  EXPECT_EQ(__saturatef(2.0f), 1.0f);
  EXPECT_EQ(simt::exp2_approx(-126.0f), 0x1p-126f);
  EXPECT_EQ(simt::exp2_approx(-127.0f), 0.0f) << "subnormals are flushed";
}

TEST(DeviceMath, FusedMultiplyAddsOfHalvesRoundOnce) {
  const __nv_bfloat162 b = __hfma2(__floats2bfloat162_rn(9, 9), __floats2bfloat162_rn(31, 31),
                                   __floats2bfloat162_rn(0, -0x1p-20f));
  EXPECT_EQ(__bfloat162float(b.x), 280.0f) << "279 is halfway";
  EXPECT_EQ(__bfloat162float(b.y), 278.0f);
  const __half2 h =
      __hfma2(__floats2half2_rn(45, 45), __floats2half2_rn(47, 47), __floats2half2_rn(0, -0x1p-20f));
  EXPECT_EQ(__half2float(h.x), 2116.0f) << "2115 is halfway";
  EXPECT_EQ(__half2float(h.y), 2114.0f);
}

}  // namespace
}  // namespace heed::testing
