#include <gtest/gtest.h>

#include <heed/nn/position.h>

#include "expect_error.h"

namespace heed::test {
namespace {

// The numbers that the code of the paper (arXiv 2108.12409) gives.
TEST(Alibi, SlopesAreThoseOfThePaper) {
  const auto slopes = [](int64_t heads) { return nn::alibi_slopes(heads).to_vector<float>(); };
  EXPECT_EQ(slopes(1), (std::vector<float>{0x1p-8f}));
  EXPECT_EQ(slopes(2), (std::vector<float>{0x1p-4f, 0x1p-8f}));
  EXPECT_EQ(slopes(3), (std::vector<float>{0x1p-4f, 0x1p-8f, 0x1p-2f}));
  EXPECT_EQ(slopes(6), (std::vector<float>{0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f, 0x1p-1f, 0x1p-3f}));
  EXPECT_EQ(slopes(8),
            (std::vector<float>{0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f}));
  EXPECT_EQ(slopes(12),
            (std::vector<float>{0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f,
                                0.7071067812f, 0.3535533906f, 0.1767766953f, 0.08838834764f}));
  expect_error<ConfigError>([] { nn::alibi_slopes(0); }, {"heads is 0"});
}

}  // namespace
}  // namespace heed::test
