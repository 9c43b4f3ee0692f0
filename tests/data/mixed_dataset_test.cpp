#include <map>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/mixed_dataset.h>

#include "../support/expect_error.h"

namespace heed::data {
namespace {

using test::expect_error;

// Sample i of an epoch is the pair (number, epoch · 1000 + i).
class Numbered final : public PairDataset {
 public:
  Numbered(int32_t number, int64_t size) : number_(number), size_(size) {}
  int64_t size() const override { return size_; }
  Pair get(int64_t epoch, int64_t index) const override {
    return {TokenIds{number_}, TokenIds{static_cast<int32_t>(1000 * epoch + index)}};
  }
  int64_t vocab() const override { return 10 + number_; }
  int64_t longest_source() const override { return number_; }
  int64_t longest_target() const override { return 7 - number_; }
  std::string fingerprint() const override { return concat("numbered ", number_); }

 private:
  int32_t number_;
  int64_t size_;
};

MixedDataset mixture(double temperature) {
  return {{std::make_shared<Numbered>(1, 2), std::make_shared<Numbered>(2, 18)}, temperature};
}

TEST(MixedDataset, AtOneEachSampleComesOnce) {
  const MixedDataset mixed = mixture(1);
  ASSERT_EQ(mixed.size(), 20);
  for (const int64_t epoch : {0, 3})
    for (int64_t i = 0; i < 20; ++i) {
      const Pair pair = mixed.get(epoch, i);
      EXPECT_EQ(pair.source[0], i < 2 ? 1 : 2);
      EXPECT_EQ(pair.target[0], 1000 * epoch + (i < 2 ? i : i - 2));
    }
  EXPECT_EQ(mixed.vocab(), 12);
  EXPECT_EQ(mixed.longest_source(), 2);
  EXPECT_EQ(mixed.longest_target(), 6);
  expect_error<IndexError>([&] { mixed.get(0, 20); }, {"pair 20 is not in 0 to 19"});
}

TEST(MixedDataset, ATemperatureMakesSmallPartsMoreFrequent) {
  const MixedDataset mixed = mixture(2);  // √2 to √18: a quarter and three
  EXPECT_EQ(mixed.share(0), 5);
  EXPECT_EQ(mixed.share(1), 15);
  std::map<std::pair<int, int>, int>
      times;  // in eighteen epochs, which is 45 times part 0 and 15 times part 1
  for (int64_t epoch = 0; epoch < 18; ++epoch)
    for (int64_t i = 0; i < mixed.size(); ++i) {
      const Pair pair = mixed.get(epoch, i);
      ++times[{pair.source[0], pair.target[0] % 1000}];
    }
  ASSERT_EQ(times.size(), 20u);
  for (const auto& [sample, count] : times) EXPECT_EQ(count, sample.first == 1 ? 45 : 15);
  const MixedDataset even = mixture(1e9);
  EXPECT_EQ(even.share(0), 10);
  EXPECT_EQ(even.share(1), 10);
  EXPECT_NE(even.fingerprint(), mixed.fingerprint());
}

TEST(MixedDataset, RefusesWhatIsNone) {
  expect_error<ConfigError>([] { mixture(0); }, {"temperature must be positive, got 0"});
  expect_error<ConfigError>([] { MixedDataset({}, 1); }, {"needs a data set"});
  expect_error<ConfigError>([] { MixedDataset({std::make_shared<Numbered>(1, 0)}, 1); }, {"is empty"});
}

}  // namespace
}  // namespace heed::data
