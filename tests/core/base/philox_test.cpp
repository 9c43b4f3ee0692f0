#include <set>

#include <gtest/gtest.h>

#include <heed/core/base/philox.h>

namespace heed {
namespace {

void expect_words(const Philox4& got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  EXPECT_EQ(got.word[0], a);
  EXPECT_EQ(got.word[1], b);
  EXPECT_EQ(got.word[2], c);
  EXPECT_EQ(got.word[3], d);
}

// The known answers published with the Random123 library for philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  expect_words(philox(0, 0, 0, 0, 0, 0), 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u);
  const uint32_t ones = 0xffffffffu;
  expect_words(philox(ones, ones, ones, ones, ones, ones), 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u,
               0x6d5451fdu);
  expect_words(philox(0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u, 0xa4093822u, 0x299f31d0u),
               0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u);
}

TEST(Dropout, RateIsRoundedToSixteenBits) {
  const Dropout tenth = make_dropout(0.1, {1, nullptr, 0});
  EXPECT_EQ(tenth.threshold, 6554u);
  EXPECT_FLOAT_EQ(tenth.scale, static_cast<float>(1.0 / (1.0 - 6554.0 / 65536.0)));
  EXPECT_FALSE(make_dropout(0.0, {}).active());
  EXPECT_EQ(make_dropout(0.999999, {}).threshold, 65535u);
}

TEST(Dropout, DeviceBaseMovesThePosition) {
  const uint64_t base = 5;
  const DropoutBits moved = dropout_bits({7, &base, 10}, 3);
  const DropoutBits direct = dropout_bits({7, nullptr, 15}, 3);
  for (int j = 0; j < 8; ++j) EXPECT_EQ(moved.bits(j), direct.bits(j));
}

TEST(Dropout, AttentionBitsDifferInEveryCoordinate) {
  std::set<uint32_t> seen;
  for (uint32_t group = 0; group < 3; ++group)
    for (uint32_t query = 0; query < 3; ++query)
      for (uint32_t plane = 0; plane < 3; ++plane)
        for (uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
          seen.insert(attention_dropout_bits({42, nullptr, offset}, group, query, plane).random.word[0]);
  EXPECT_EQ(seen.size(), 81u);
}

}  // namespace
}  // namespace heed
