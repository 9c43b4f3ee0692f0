#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/core/base/bfloat16.h>

namespace heed {
namespace {

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bfloat16(1.00390625f).bits, 0x3f80);  // half-way, down to even
  EXPECT_EQ(bfloat16(1.01171875f).bits, 0x3f82);  // half-way, up to even
  EXPECT_EQ(bfloat16(1.00390637f).bits, 0x3f81);  // just above half-way
  EXPECT_EQ(bfloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bfloat16(3.4e38f).bits, 0x7f80);  // past the largest: infinity
}

TEST(BFloat16, NanStaysNanEvenWithLowPayloadBits) {
  const uint32_t word = 0x7f800001u;
  float nan;
  memcpy(&nan, &word, sizeof nan);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(nan))));
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    bfloat16 value;
    value.bits = static_cast<uint16_t>(bits);
    const float wide = value;
    if (std::isnan(wide)) continue;
    EXPECT_EQ(bfloat16(wide).bits, bits);
  }
}

}  // namespace
}  // namespace heed
