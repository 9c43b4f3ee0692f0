// How often attention reads its keys, counted by the race checker.
#include <gtest/gtest.h>

#include <heed/kernels/simt/host/emulator.h>

#include "attention_check.h"

namespace heed::test {
namespace {

// By the forward, in times that all keys are read.
double passes_over_keys(const AttentionCase& c) {
  const AttentionProblem<bfloat16> p(aligned(c));
  const Attention attention(p);
  AttentionResult<bfloat16, float> r;
  attention.forward(r);
  int64_t keys = 0;
  for (const Lengths& lengths : c.sequences) keys += lengths.keys;
  const int64_t bytes = keys * c.key_heads * c.width * static_cast<int64_t>(sizeof(bfloat16));
  return static_cast<double>(emulator::traffic(attention.forward_args().k.data).read) /
         static_cast<double>(bytes);
}

class AttentionTraffic : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulator::checks_races()) GTEST_SKIP() << "counted by the race checker";
  }
};

// A row whose sums are finite is not taken once more. K and V are views of one buffer.
TEST_F(AttentionTraffic, KeysAreReadOnce) {
  for (const int32_t keys : {30, 140})
    EXPECT_EQ(passes_over_keys({.sequences = {{20, keys}}, .heads = 1, .key_heads = 1, .width = 16}), 2);
}

// Two blocks on Hopper, of 128 queries each, get the tiles that one of them reads.
TEST_F(AttentionTraffic, BlocksOfAClusterReadKeysOnce) {
  if (cuda::compute_capability() != 90) GTEST_SKIP() << "the device is not of compute capability 9.0";
  const auto passes = [](int32_t queries, int32_t keys) {
    return passes_over_keys({.sequences = {{queries, keys}}, .heads = 1, .key_heads = 1, .width = 128});
  };
  EXPECT_EQ(passes(256, 1056), 2);
  EXPECT_EQ(passes(257, 1056), 4);
  EXPECT_EQ(passes(256, 512), 4);  // too few keys for a cluster
}

}  // namespace
}  // namespace heed::test
