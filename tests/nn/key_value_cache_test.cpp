// The keys and values of a decoder's past: what sequences hold however they are copied, dropped and put in
// another order, and the memory that it takes.
#include <cstdlib>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/core/storage.h>
#include <heed/nn/attention/key_value_cache.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/models/transformer.h>

#include "expect_error.h"
#include "op_check.h"

namespace heed::nn {
namespace {

using test::expect_error;

TEST(KeyValueCache, Errors) {
  KeyValueCache cache(1, 2, 4, {});
  expect_error<StateError>([&] { cache.extend(Segments::dense(2, 1)); }, {"hold a NoGrad"});
  const NoGrad no_grad;
  expect_error<ShapeError>([&] { cache.extend(Segments::dense(3, 1)); }, {"rows of 3 sequences"});
  cache.extend(Segments::dense(2, 1));
  expect_error<IndexError>([&] { cache.append(1, zeros({2, 4})); }, {"there is no layer 1 of 1"});
  expect_error<ShapeError>([&] { cache.append(0, zeros({2, 3})); }, {"expected [2, 4]"});
  EXPECT_THROW(cache.select(std::vector<int64_t>{0, 2}), IndexError);
  EXPECT_THROW(KeyValueCache(1, 2, 0, {}), ConfigError);
}

// Sequences may be copied, dropped and put in another order.
TEST(KeyValueCache, Select) {
  const NoGrad no_grad;
  KeyValueCache cache(1, 2, 1, {});
  cache.extend(Segments::packed(std::vector<int32_t>{1, 2}));
  cache.append(0, tensor<float>({1, 2, 3}).unsqueeze(1));
  cache.select(std::vector<int64_t>{1, 1, 0});
  EXPECT_EQ(cache.sequences(), 3);
  EXPECT_EQ(cache.length(0), 2);
  EXPECT_EQ(cache.length(2), 1);
  cache.extend(Segments::dense(3, 1));
  const Tensor all = cache.append(0, tensor<float>({7, 8, 9}).unsqueeze(1));
  const auto held = [&](int64_t i) {
    const int64_t first = cache.segments().key_first(i);
    return all.slice(0, first, first + cache.length(i)).to_vector<float>();
  };
  EXPECT_EQ(held(0), (std::vector<float>{2, 3, 7}));
  EXPECT_EQ(held(1), (std::vector<float>{2, 3, 8}));
  EXPECT_EQ(held(2), (std::vector<float>{1, 9}));
}

// A cache of two layers and the rows that its sequences should have, all of different numbers.
class Followed {
 public:
  Followed(int64_t sequences, Device device)
      : cache_(kLayers, sequences, kColumns, {.device = device}),
        rows_(static_cast<size_t>(sequences)),
        device_(device) {}

  /// So many rows more for each sequence, with a row of none before each.
  void extend(const std::vector<int32_t>& lengths) {
    PooledVector<int64_t> first;
    int64_t rows = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      first.push_back(++rows);
      for (int32_t t = 0; t < lengths[i]; ++t) rows_[i].push_back(next_ + static_cast<double>(rows + t));
      rows += lengths[i];
    }
    cache_.extend(Segments(first, lengths, first, lengths));
    const Tensor numbers = arange(next_, next_ + static_cast<double>(rows)).to(DType::f32).unsqueeze(1);
    for (int64_t layer = 0; layer < kLayers; ++layer)
      all_[layer] = cache_.append(
          layer, (numbers + 0.25 * static_cast<double>(layer)).expand({rows, kColumns}).to(device_));
    next_ += static_cast<double>(rows);
  }

  void select(const std::vector<int64_t>& parents) {
    cache_.select(parents);
    std::vector<std::vector<double>> rows;
    for (const int64_t parent : parents) rows.push_back(rows_[static_cast<size_t>(parent)]);
    rows_ = std::move(rows);
  }

  void expect_rows() const {
    ASSERT_EQ(cache_.sequences(), std::ssize(rows_));
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const Tensor all = all_[layer].to(kCpu).to(DType::f64);
      for (int64_t i = 0; i < cache_.sequences(); ++i) {
        const std::vector<double>& want = rows_[static_cast<size_t>(i)];
        const int64_t first = cache_.segments().key_first(i);
        ASSERT_EQ(cache_.length(i), std::ssize(want));
        ASSERT_EQ(cache_.segments().key_length(i), std::ssize(want));
        for (int64_t t = 0; t < std::ssize(want); ++t)
          for (int64_t column = 0; column < kColumns; ++column)
            ASSERT_EQ(all.select(0, first + t).select(0, column).item<double>(),
                      want[static_cast<size_t>(t)] + 0.25 * static_cast<double>(layer))
                << "layer " << layer << ", sequence " << i << ", row " << t;
      }
    }
  }

  int64_t sequences() const { return cache_.sequences(); }

 private:
  static constexpr int64_t kLayers = 2, kColumns = 3;
  KeyValueCache cache_;
  std::vector<std::vector<double>> rows_;
  Device device_;
  double next_ = 0;
  Tensor all_[kLayers];
};

TEST(KeyValueCache, SequencesHoldTheirRowsHoweverTheyAreSelected) {
  const NoGrad no_grad;
  for (const Device device : test::devices()) {
    SCOPED_TRACE(device);
    std::mt19937 random(7);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
    Followed followed(4, device);
    for (int step = 0; step < 25; ++step) {  // the longest outgrow the first memory twice
      std::vector<int32_t> lengths;
      for (int64_t i = 0; i < followed.sequences(); ++i)
        lengths.push_back(step % 3 == 2 ? static_cast<int32_t>(below(3)) : 1);
      followed.extend(lengths);
      followed.expect_rows();
      // Fewer sequences, as many, and once more than there ever were.
      const int64_t count = step == 12 ? 9 : std::max<int64_t>(2, followed.sequences() - below(2) + below(2));
      std::vector<int64_t> parents;
      for (int64_t i = 0; i < count; ++i) parents.push_back(below(followed.sequences()));
      followed.select(parents);
    }
  }
}

int64_t bytes_in_use() { return allocator(kCpu).stats().in_use; }

// Eight rows for each at first, twice as many where one needs more, and none for what has been dropped.
TEST(KeyValueCache, MemoryFollowsLengthsAndSequences) {
  constexpr int64_t kLayers = 3, kColumns = 64, kRow = kLayers * kColumns * 4, kSlack = 20'000;
  const NoGrad no_grad;
  const int64_t before = bytes_in_use();
  KeyValueCache cache(kLayers, 100, kColumns, {});
  const auto step = [&] {
    cache.extend(Segments::dense(cache.sequences(), 1));
    for (int64_t layer = 0; layer < kLayers; ++layer)
      cache.append(layer, ones({cache.sequences(), kColumns}));
  };
  for (int i = 0; i < 8; ++i) step();
  EXPECT_LE(std::abs(bytes_in_use() - before - 100 * 8 * kRow), kSlack);
  std::vector<int64_t> few(10);
  std::iota(few.begin(), few.end(), int64_t{40});
  cache.select(few);
  step();
  EXPECT_LE(std::abs(bytes_in_use() - before - 10 * 16 * kRow), kSlack);
}

// A search at its peak takes less than twice the keys and values that its hypotheses hold.
TEST(KeyValueCache, ASearchTakesLittleMoreThanItHolds) {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 20;
  config.d_model = config.d_ff = 64;
  config.heads = 4;
  config.encoder_layers = 1;
  config.decoder_layers = 2;
  Generator generator(5);
  Transformer model(config, generator);
  constexpr int64_t kSources = 40, kBeam = 5, kLength = 8;
  const Tokens sources = Tokens::packed(std::vector<std::vector<int64_t>>(kSources, {1, 5, 7, 2}));
  const int64_t held = kSources * kBeam * kLength * config.decoder_layers * 2 * config.d_model * 4,
                before = bytes_in_use();
  allocator(kCpu).reset_peak();
  beam_search(model, sources, {.end = -1, .max_length = kLength, .beam = kBeam});
  const int64_t most = allocator(kCpu).stats().peak - before;
  EXPECT_GT(most, held);
  EXPECT_LT(most, 2 * held);
}

}  // namespace
}  // namespace heed::nn
