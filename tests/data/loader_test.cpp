#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/pair_loader.h>
#include <heed/data/tasks.h>
#include <heed/data/tsv.h>

#include "../support/expect_error.h"

namespace heed::data {
namespace {

using Ids = TokenIds;
using test::expect_error;

std::shared_ptr<const PairDataset> task_pairs(int64_t pairs, bool fresh = false) {
  return std::make_shared<TaskDataset>(TaskOptions{.pairs = pairs, .fresh = fresh}, Split::train);
}

/// Everything about a batch, for comparing two loaders bit by bit.
std::vector<Ids> all_of(const std::optional<PairBatch>& batch) {
  if (!batch) return {};
  return {batch->source_ids,
          batch->target_ids,
          batch->labels,
          batch->pairs,
          batch->source.first,
          batch->target.first,
          Ids(batch->source.length.begin(), batch->source.length.end()),
          Ids(batch->target.length.begin(), batch->target.length.end())};
}

std::vector<PairBatch> epoch_of(PairLoader& loader) {
  std::vector<PairBatch> batches;
  while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  return batches;
}

Ids numbers_of(const std::vector<PairBatch>& batches) {
  Ids numbers;
  for (const PairBatch& batch : batches)
    numbers.insert(numbers.end(), batch.pairs.begin(), batch.pairs.end());
  return numbers;
}

const LoaderOptions kVariants[] = {
    {.batch_size = 8, .window_batches = 3},
    {.batch_size = 8, .window_batches = 3, .prefetch = false},
    {.batch_size = 8, .max_tokens = 80, .window_batches = 4},
    {.batch_size = 8, .shuffle = false},
    {.batch_size = 8, .max_tokens = 80, .shuffle = false},
    {.batch_size = 1, .window_batches = 1},
    {.batch_size = 1000},
};

TEST(Loader, EveryPairOccursOnceAnEpoch) {
  for (const int64_t pairs : {1, 7, 8, 9, 24, 25, 100}) {
    for (const LoaderOptions& options : kVariants) {
      PairLoader loader(task_pairs(pairs), options);
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        EXPECT_EQ(loader.state(), (LoaderState{epoch, 0}));
        const std::vector<PairBatch> batches = epoch_of(loader);
        EXPECT_EQ(static_cast<int64_t>(batches.size()), loader.count_batches(epoch));
        Ids numbers = numbers_of(batches);
        std::sort(numbers.begin(), numbers.end());
        Ids expected(static_cast<size_t>(pairs));
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(numbers, expected);
      }
    }
  }
}

TEST(Loader, BatchesHoldThePairsTheyName) {
  const auto set = task_pairs(50, true);
  PairLoader loader(set, {.batch_size = 8});
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (const PairBatch& batch : epoch_of(loader)) {
      std::vector<Pair> pairs;
      for (const int64_t number : batch.pairs) pairs.push_back(set->get(epoch, number));
      EXPECT_EQ(all_of(pack(pairs, batch.pairs)), all_of(batch));
    }
  }
}

TEST(Loader, ResumesBitByBitAtEveryPosition) {
  for (const bool fresh : {false, true}) {
    const auto set = task_pairs(60, fresh);
    for (const LoaderOptions& options : kVariants) {
      PairLoader loader(set, options);
      std::vector<LoaderState> states;
      std::vector<std::vector<Ids>> batches;
      while (loader.state().epoch < 2) {
        states.push_back(loader.state());
        batches.push_back(all_of(loader.next()));
      }
      LoaderOptions other_way = options;  // whether batches are prepared ahead makes no difference
      other_way.prefetch = !options.prefetch;
      PairLoader seeking(set, options);
      for (size_t at = 0; at < states.size(); ++at) {
        PairLoader resumed(set, other_way, {}, states[at]);
        seeking.seek(states[at]);
        for (size_t i = at; i < std::min(at + 5, states.size()); ++i) {
          EXPECT_EQ(resumed.state(), states[i]);
          EXPECT_EQ(all_of(resumed.next()), batches[i]);
          EXPECT_EQ(all_of(seeking.next()), batches[i]);
        }
      }
    }
  }
}

TEST(Loader, EpochsAndSeedsDiffer) {
  const auto set = task_pairs(200);
  std::set<Ids> orders;
  for (const uint64_t seed : {1, 2, 3}) {
    PairLoader loader(set, {.batch_size = 4, .seed = seed});
    for (int epoch = 0; epoch < 3; ++epoch) orders.insert(numbers_of(epoch_of(loader)));
  }
  EXPECT_EQ(orders.size(), 9u);
}

TEST(Loader, BatchesAreOfLikeLength) {
  const auto set = task_pairs(3200);
  const auto pad_rows = [&](const LoaderOptions& options) {
    PairLoader loader(set, options);
    int64_t rows = 0, pads = 0;
    for (const PairBatch& batch : epoch_of(loader)) {
      rows += batch.target.rows;
      pads += padded(batch).target.rows - batch.target.rows;
    }
    return static_cast<double>(pads) / static_cast<double>(rows);
  };
  EXPECT_LT(pad_rows({.batch_size = 32}), 0.03);
  EXPECT_GT(pad_rows({.batch_size = 32, .shuffle = false}), 0.3);
}

TEST(Loader, LongBatchesComeAtAnyTime) {
  PairLoader loader(task_pairs(3200), {.batch_size = 32});
  std::vector<int32_t> lengths;
  for (const PairBatch& batch : epoch_of(loader)) lengths.push_back(batch.target.max_length);
  int rising = 0;
  for (size_t i = 1; i < lengths.size(); ++i) rising += lengths[i] > lengths[i - 1];
  EXPECT_GT(rising, 25);
  EXPECT_LT(rising, 65);
}

TEST(Loader, EveryPlaceIsEquallyLikely) {
  const auto set = task_pairs(4);
  std::map<Ids, int> orders;
  PairLoader loader(set,
                    {.batch_size = 1, .window_batches = 1, .prefetch = false});  // windows of one: no sorting
  constexpr int kEpochs = 24'000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) ++orders[numbers_of(epoch_of(loader))];
  ASSERT_EQ(orders.size(), 24u);
  double chi_square = 0;
  for (const auto& order : orders) chi_square += (order.second - 1000.0) * (order.second - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 49.7);  // 99.9 % of 23 degrees of freedom
}

TEST(Loader, WithoutShufflingTheFileKeepsItsOrder) {
  const auto set = std::make_shared<TsvDataset>(parse_tsv("9 9 9\t3\n4\t4 4\n5 5\t5\n6\t6\n7\t7\n", "f"));
  PairLoader loader(set, {.batch_size = 2, .shuffle = false});
  const std::vector<PairBatch> batches = epoch_of(loader);
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].pairs, (Ids{0, 1}));
  EXPECT_EQ(batches[1].pairs, (Ids{2, 3}));
  EXPECT_EQ(batches[2].pairs, (Ids{4}));
  EXPECT_EQ(batches[0].source_ids, (Ids{1, 9, 9, 9, 2, 1, 4, 2}));
  EXPECT_EQ(numbers_of(epoch_of(loader)), (Ids{0, 1, 2, 3, 4}));
}

TEST(Loader, TokenBudgetsHold) {
  const auto set = task_pairs(500);
  for (const bool shuffled : {true, false}) {
    PairLoader loader(set, {.batch_size = 64, .max_tokens = 200, .shuffle = shuffled});
    int64_t rows = 0, batches = 0;
    for (const PairBatch& batch : epoch_of(loader)) {
      EXPECT_LE(batch.source.rows + batch.target.rows, 200);
      rows += batch.source.rows + batch.target.rows;
      ++batches;
    }
    EXPECT_GT(rows, batches * 165) << "batches are filled";
  }
}

/// Fails on one pair for as long as it is told to.
class FailingDataset final : public PairDataset {
 public:
  int64_t size() const override { return 20; }
  Pair get(int64_t, int64_t index) const override {
    HEED_CHECK(index != 13 || !broken, DataError, "pair 13 is broken");
    return {{3 + index}, {3}};
  }
  int64_t vocab() const override { return 23; }
  int64_t longest_source() const override { return 1; }
  int64_t longest_target() const override { return 1; }
  std::string fingerprint() const override { return "failing"; }

  std::atomic<bool> broken{true};
};

TEST(Loader, ExceptionsOfTheDataSetReachTheCaller) {
  for (const bool prefetch : {false, true}) {
    const auto set = std::make_shared<FailingDataset>();
    PairLoader loader(set, {.batch_size = 4, .shuffle = false, .prefetch = prefetch});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(loader.next()->pairs[0], 4 * i);
    for (int i = 0; i < 2; ++i) {
      expect_error<DataError>([&] { loader.next(); }, {"pair 13 is broken"});
      EXPECT_EQ(loader.state(), (LoaderState{0, 12}));
    }
    set->broken = false;
    EXPECT_EQ(loader.next()->pairs, (Ids{12, 13, 14, 15}));
  }
}

TEST(Loader, StopsCleanlyWhateverItIsDoing) {
  const auto set = task_pairs(100'000);
  for (int i = 0; i < 50; ++i) {
    PairLoader loader(set, {.batch_size = 16});
    for (int k = 0; k < i % 3; ++k) loader.next();
    PairLoader moved = std::move(loader);
    moved.next();
    PairLoader other(task_pairs(10), {});
    other = std::move(moved);
    other.next();
  }
}

TEST(Loader, ImpossibleOptionsAreRefused) {
  const auto set = task_pairs(100);
  const auto make = [&](LoaderOptions options, LoaderState state = {}) {
    PairLoader(set, options, {}, state);
  };
  expect_error<ConfigError>([&] { make({.batch_size = 0}); }, {"batch_size is 0"});
  expect_error<ConfigError>([&] { make({.window_batches = 0}); }, {"window_batches is 0"});
  expect_error<ConfigError>([&] { make({.max_tokens = -1}); }, {"max_tokens is -1"});
  expect_error<ConfigError>([&] { make({.max_tokens = 32}); }, {"max_tokens is 32", "takes 33 rows"});
  make({.max_tokens = 33});
  expect_error<ConfigError>([&] { PairLoader(nullptr, {}); }, {"empty"});
  const auto none = std::make_shared<TaskDataset>(TaskOptions{.valid_pairs = 0}, Split::valid);
  expect_error<ConfigError>([&] { PairLoader(none, {}); }, {"empty"});
  const auto many = task_pairs(int64_t{1} << 33);
  expect_error<ConfigError>([&] { PairLoader(many, {}); }, {"cannot shuffle 8589934592 samples"});
  EXPECT_EQ(PairLoader(many, {.shuffle = false}).next()->size(), 32);
}

TEST(Loader, StatesOfAnotherLoaderAreRefused) {
  const auto set = task_pairs(100);
  const LoaderOptions options{.batch_size = 8, .window_batches = 100};
  expect_error<CheckpointError>(
      [&] {
        PairLoader(set, options, {}, {0, 101});
      },
      {"epoch 0, position 101", "100 samples"});
  expect_error<CheckpointError>([&] { PairLoader(set, options, {}, {-1, 0}); }, {"epoch -1"});
  expect_error<CheckpointError>([&] { PairLoader(set, options, {}, {0, -8}); }, {"position -8"});
  expect_error<CheckpointError>(
      [&] {
        PairLoader(set, options, {}, {0, 3});
      },
      {"position 3", "no batch begins there"});
  PairLoader loader(set, options);
  const Ids first = loader.next()->pairs;
  const LoaderState before = loader.state();
  expect_error<CheckpointError>([&] { loader.seek({0, 3}); }, {"no batch begins there"});
  EXPECT_EQ(loader.state(), before);
  loader.seek({0, 0});
  EXPECT_EQ(loader.next()->pairs, first);
}

TEST(Loader, MarksAreRowsOfABatch) {
  const auto set = task_pairs(200);
  PairLoader loader(set, {.batch_size = 8, .max_tokens = 40}, {.source = false, .end = false});
  for (const PairBatch& batch : epoch_of(loader)) {
    int64_t symbols = 0;
    for (const int64_t number : batch.pairs)
      symbols += std::ssize(set->get(0, number).source) + std::ssize(set->get(0, number).target);
    EXPECT_EQ(batch.source.rows + batch.target.rows, symbols);
    EXPECT_LE(symbols, 40);
  }
}

// Whatever the variant, the shards of a loader take its batches in turn, and their states are the same.
TEST(Loader, ShardsShareTheBatches) {
  for (const bool fresh : {false, true}) {
    const auto set = task_pairs(103, fresh);
    for (const LoaderOptions& options : kVariants)
      for (const int64_t count : {2, 3}) {
        PairLoader whole(set, options);
        std::vector<PairLoader> shards;
        for (int64_t index = 0; index < count; ++index) {
          LoaderOptions own = options;
          own.shard = {index, count};
          shards.emplace_back(set, own);
        }
        for (int64_t epoch = 0; epoch < 2; ++epoch) {
          const std::vector<PairBatch> batches = epoch_of(whole);
          std::vector<int64_t> taken(static_cast<size_t>(count));
          for (size_t i = 0; i < batches.size(); ++i) {
            PairLoader& shard = shards[i % shards.size()];
            EXPECT_EQ(all_of(shard.next()), all_of(batches[i]));
            ++taken[i % shards.size()];
            if (i % shards.size() > 0) {
              EXPECT_EQ(shard.state(), shards[0].state());
            }
          }
          for (size_t index = 0; index < shards.size(); ++index) {
            EXPECT_FALSE(shards[index].next());
            EXPECT_EQ(shards[index].state(), (LoaderState{epoch + 1, 0}));
            EXPECT_EQ(shards[index].count_batches(epoch), taken[index]);
          }
        }
      }
  }
}

TEST(Loader, AShardResumesFromTheStateOfAnother) {
  const auto set = task_pairs(60);
  LoaderOptions options{.batch_size = 4, .window_batches = 3, .shard = {0, 2}};
  PairLoader first(set, options);
  options.shard.index = 1;
  PairLoader second(set, options);
  for (int i = 0; i < 3; ++i) {
    first.next();
    second.next();
  }
  PairLoader resumed(set, options, {}, first.state());
  for (int i = 0; i < 6; ++i) EXPECT_EQ(all_of(resumed.next()), all_of(second.next()));
}

TEST(Loader, ImpossibleShardsAreRefused) {
  const auto set = task_pairs(10);
  for (const Shard shard : {Shard{0, 0}, Shard{-1, 2}, Shard{2, 2}})
    expect_error<ConfigError>([&] { PairLoader(set, {.shard = shard}); },
                              {concat("no shard ", shard.index, " of ", shard.count)});
}

/// Windows of `length` tokens of a text, as a language model is trained on.
class Windows final : public Dataset<TokenIds> {
 public:
  Windows(int64_t tokens, int64_t length) : tokens_(tokens), length_(length) {}
  int64_t size() const override { return (tokens_ + length_ - 1) / length_; }
  TokenIds get(int64_t, int64_t index) const override {
    TokenIds window(static_cast<size_t>(std::min(length_, tokens_ - index * length_)));
    std::iota(window.begin(), window.end(), index * length_);
    return window;
  }
  std::string fingerprint() const override { return "windows"; }

 private:
  int64_t tokens_, length_;
};

using Packed = std::vector<int64_t>;

Collate<TokenIds, Packed> one_after_another() {
  return {.batch =
              [](std::span<const TokenIds> samples, std::span<const int64_t>) {
                Packed all;
                for (const TokenIds& sample : samples) all.insert(all.end(), sample.begin(), sample.end());
                return all;
              },
          .size =
              [](const TokenIds& sample) {
                return SampleSize{std::ssize(sample), {std::ssize(sample)}};
              }};
}

TEST(Loader, TakesAnySamplesAndMakesAnyBatches) {
  const auto text = std::make_shared<Windows>(50, 8);
  Loader<TokenIds, Packed> loader(text, one_after_another(), {.batch_size = 10, .max_tokens = 16});
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    Packed all;
    int64_t batches = 0;
    for (; const std::optional<Packed> batch = loader.next(); ++batches) {
      EXPECT_LE(batch->size(), 16u);
      all.insert(all.end(), batch->begin(), batch->end());
    }
    EXPECT_EQ(batches, loader.count_batches(epoch));
    std::sort(all.begin(), all.end());
    Packed expected(50);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
}

TEST(Loader, WithoutSizesItShufflesAlone) {
  const auto text = std::make_shared<Windows>(64, 1);
  Loader<TokenIds, Packed> loader(text, {.batch = one_after_another().batch}, {.batch_size = 8});
  std::set<Packed> orders;
  for (int epoch = 0; epoch < 2; ++epoch) {
    Packed all;
    while (const std::optional<Packed> batch = loader.next()) {
      EXPECT_EQ(batch->size(), 8u);
      EXPECT_FALSE(std::is_sorted(batch->begin(), batch->end()));
      all.insert(all.end(), batch->begin(), batch->end());
    }
    orders.insert(all);
  }
  EXPECT_EQ(orders.size(), 2u);
}

TEST(Loader, ASampleThatHasNoRoomIsAnError) {
  const auto text = std::make_shared<Windows>(20, 8);
  for (const bool shuffled : {false, true})
    expect_error<DataError>(
        [&] {
          const LoaderOptions options{.max_tokens = 7, .shuffle = shuffled, .prefetch = false};
          Loader<TokenIds, Packed>(text, one_after_another(), options).next();
        },
        {"a sample of 8 rows", "max_tokens 7"});
}

}  // namespace
}  // namespace heed::data
