#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/tasks.h>

#include "../support/expect_error.h"

namespace heed::data {
namespace {

using Ids = Symbols;
using test::expect_error;

constexpr Task kTasks[] = {Task::copy_reverse, Task::copy, Task::reverse, Task::sort, Task::add};

TEST(Tasks, TargetsByHand) {
  const Ids source{5, 3, 9, 3};
  EXPECT_EQ(solve(Task::copy_reverse, source), (Ids{5, 3, 9, 3, 3, 9, 3, 5}));
  EXPECT_EQ(solve(Task::copy, source), source);
  EXPECT_EQ(solve(Task::reverse, source), (Ids{3, 9, 3, 5}));
  EXPECT_EQ(solve(Task::sort, source), (Ids{3, 3, 5, 9}));
  EXPECT_EQ(solve(Task::add, {12, 12, 13, 4}), (Ids{4, 3, 3}));       // 99 + 1 = 100
  EXPECT_EQ(solve(Task::add, {4, 5, 13, 6, 7, 8}), (Ids{6, 8, 10}));  // 12 + 345 = 357
  EXPECT_EQ(solve(Task::add, {3, 13, 3}), (Ids{3}));                  // 0 + 0 = 0
  EXPECT_EQ(solve(Task::add, {3, 3, 13, 3, 3}), (Ids{3}));
  for (const Ids& bad : {Ids{}, Ids{3}, Ids{13}, Ids{3, 13}, Ids{13, 3}, Ids{3, 13, 13, 3}, Ids{3, 13, 14}})
    expect_error<DataError>([&] { solve(Task::add, bad); }, {"task add"});
}

int64_t number(const Ids& digits) {
  int64_t value = 0;
  for (const int64_t digit : digits) value = 10 * value + digit - 3;
  return value;
}

TEST(Tasks, SumsAreRight) {
  const TaskDataset set({.task = Task::add, .min_length = 1, .max_length = 9, .pairs = 2000}, Split::train);
  EXPECT_EQ(set.longest_source(), 19);
  EXPECT_EQ(set.longest_target(), 10);
  for (int64_t i = 0; i < set.size(); ++i) {
    const Pair pair = set.get(0, i);
    const auto plus = std::find(pair.source.begin(), pair.source.end(), 13);
    ASSERT_NE(plus, pair.source.end());
    const Ids a(pair.source.begin(), plus), b(plus + 1, pair.source.end());
    EXPECT_EQ(number(a) + number(b), number(pair.target));
    for (const Ids& digits : {a, b, pair.target})
      EXPECT_TRUE(digits.size() == 1 || digits[0] != 3) << "a leading zero";
  }
}

TEST(Tasks, EveryPairIsWithinItsBounds) {
  for (const Task task : kTasks) {
    for (const Split split : {Split::train, Split::valid}) {
      const TaskDataset set(
          {.task = task, .min_length = 2, .max_length = 6, .pairs = 500, .valid_pairs = 300}, split);
      EXPECT_EQ(set.size(), split == Split::train ? 500 : 300);
      size_t longest_source = 0, longest_target = 0;
      for (int64_t i = 0; i < set.size(); ++i) {
        const Pair pair = set.get(0, i);
        EXPECT_EQ(pair.target, solve(task, pair.source));
        longest_source = std::max(longest_source, pair.source.size());
        longest_target = std::max(longest_target, pair.target.size());
        EXPECT_GE(pair.source.size(), task == Task::add ? 5u : 2u);
        for (const Ids& ids : {pair.source, pair.target})
          for (const int64_t id : ids) EXPECT_TRUE(id >= 3 && id < set.vocab());
      }
      EXPECT_EQ(static_cast<int64_t>(longest_source), set.longest_source()) << name(task);
      EXPECT_EQ(static_cast<int64_t>(longest_target), set.longest_target()) << name(task);
    }
  }
}

std::set<Ids> sources(const TaskDataset& set, int64_t epochs = 1) {
  std::set<Ids> all;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (int64_t i = 0; i < set.size(); ++i) all.insert(set.get(epoch, i).source);
  return all;
}

TEST(Tasks, ValidationSourcesNeverOccurInTraining) {
  for (const Task task : {Task::copy_reverse, Task::add}) {
    TaskOptions options{.task = task,
                        .min_length = 1,
                        .max_length = 3,
                        .vocab = 14,
                        .pairs = 20'000,
                        .valid_pairs = 100,
                        .fresh = true};
    const std::set<Ids> train = sources(TaskDataset(options, Split::train), 3);
    for (const uint64_t seed : {42, 43, 44}) {  // also those of another seed
      options.seed = seed;
      const std::set<Ids> valid = sources(TaskDataset(options, Split::valid));
      EXPECT_EQ(valid.size(), 100u) << "validation sources differ";
      for (const Ids& source : valid) EXPECT_EQ(train.count(source), 0u);
    }
    EXPECT_GT(train.size(), 1000u);
  }
}

TEST(Tasks, PairsFollowFromSeedAndNumberAlone) {
  const TaskOptions options{.pairs = 100, .valid_pairs = 50};
  const TaskDataset a(options, Split::train);
  TaskOptions more = options;
  more.pairs = 1'000'000'000;
  more.valid_pairs = 70;
  const TaskDataset b(more, Split::train);
  for (int64_t i = 99; i >= 0; --i) EXPECT_EQ(a.get(0, i), b.get(0, i));
  EXPECT_EQ(b.get(0, 999'999'999), b.get(0, 999'999'999));
  const TaskDataset valid(options, Split::valid), more_valid(more, Split::valid);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(valid.get(0, i), more_valid.get(7, i));
  TaskOptions other = options;
  other.seed = 43;
  EXPECT_NE(a.get(0, 0), TaskDataset(other, Split::train).get(0, 0));
}

// The very pairs: whoever changes them changes every published figure.
TEST(Tasks, TheDrawnPairsArePinned) {
  const TaskDataset train({}, Split::train);
  EXPECT_EQ(train.get(0, 0).source, (Ids{11, 5, 18, 13}));
  EXPECT_EQ(train.get(0, 9'999).source, (Ids{18, 17, 6, 8, 18}));
  EXPECT_EQ(TaskDataset({}, Split::valid).get(0, 0).source, (Ids{7, 10, 15, 19, 11}));
}

TEST(Tasks, FreshPairsDifferByEpoch) {
  TaskOptions options{.pairs = 200};
  const TaskDataset fixed(options, Split::train);
  options.fresh = true;
  const TaskDataset fresh(options, Split::train);
  int same = 0;
  for (int64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(fixed.get(0, i), fixed.get(5, i));
    EXPECT_EQ(fixed.get(0, i), fresh.get(0, i));
    same += fresh.get(0, i) == fresh.get(1, i);
  }
  EXPECT_EQ(same, 0);
}

TEST(Tasks, LengthsAndSymbolsAreUniform) {
  const TaskDataset set({.task = Task::copy, .min_length = 3, .max_length = 10, .vocab = 20, .pairs = 40'000},
                        Split::train);
  std::map<int64_t, double> lengths, symbols;
  double total = 0;
  for (int64_t i = 0; i < set.size(); ++i) {
    const Ids source = set.get(0, i).source;
    lengths[static_cast<int64_t>(source.size())] += 1;
    for (const int64_t symbol : source) symbols[symbol] += 1;
    total += static_cast<double>(source.size());
  }
  ASSERT_EQ(lengths.size(), 8u);
  ASSERT_EQ(symbols.size(), 17u);
  const auto chi_square = [](const std::map<int64_t, double>& counts, double expected) {
    double sum = 0;
    for (const auto& count : counts) sum += (count.second - expected) * (count.second - expected) / expected;
    return sum;
  };
  EXPECT_LT(chi_square(lengths, 40'000 / 8.0), 24.3);  // 99.9 % of 7 degrees of freedom
  EXPECT_LT(chi_square(symbols, total / 17), 39.3);    // of 16
}

TEST(Tasks, ImpossibleOptionsAreRefused) {
  const auto make = [](TaskOptions options, Split split = Split::train) {
    return TaskDataset(options, split);
  };
  expect_error<ConfigError>([&] { make({.min_length = 0}); }, {"min_length is 0", "1 to 65536"});
  expect_error<ConfigError>([&] { make({.min_length = 3, .max_length = -1}); }, {"max_length is -1"});
  expect_error<ConfigError>([&] { make({.max_length = 65'537}); }, {"max_length is 65537"});
  expect_error<ConfigError>([&] { make({.min_length = 5, .max_length = 4}); },
                            {"min_length 5 exceeds max_length 4"});
  expect_error<ConfigError>([&] { make({.vocab = 3}); }, {"vocab is 3", "at least 4"});
  expect_error<ConfigError>([&] { make({.task = Task::add, .vocab = 13}); }, {"vocab is 13", "at least 14"});
  expect_error<ConfigError>([&] { make({.vocab = int64_t{1} << 40}); }, {"vocab is 1099511627776"});
  expect_error<ConfigError>([&] { make({.pairs = 0}); }, {"pairs is 0"});
  expect_error<ConfigError>([&] { make({.valid_pairs = -1}); }, {"valid_pairs is -1"});
  expect_error<ConfigError>([] { parse_task("sum"); }, {"unknown task 'sum'", "copy_reverse"});
  for (const Task task : kTasks) EXPECT_EQ(parse_task(name(task)), task);
}

TEST(Tasks, TooFewSourcesAreRefused) {
  const TaskOptions few{.min_length = 1, .max_length = 2, .vocab = 10, .valid_pairs = 100};
  expect_error<ConfigError>([&] { TaskDataset(few, Split::valid); },
                            {"too few different sources for valid_pairs = 100", "has 56 sources", "found "});
  const TaskOptions add{.task = Task::add, .min_length = 1, .max_length = 1, .valid_pairs = 100};
  expect_error<ConfigError>([&] { TaskDataset(add, Split::valid); }, {"has 100 sources"});
  // Of sources with one symbol and one length there is a single one: it is in one split, and the other has
  // none.
  int refused = 0;
  for (int64_t length = 1; length <= 30; ++length) {
    const TaskOptions one{
        .task = Task::copy, .min_length = length, .max_length = length, .vocab = 4, .valid_pairs = 1};
    for (const Split split : {Split::train, Split::valid}) {
      try {
        TaskDataset(one, split);
      } catch (const ConfigError& error) {
        ++refused;
        EXPECT_NE(std::string(error.what()).find("has 1 sources"), std::string::npos) << error.what();
      }
    }
    TaskOptions all = one;
    all.valid_pairs = 0;
    EXPECT_EQ(TaskDataset(all, Split::train).get(0, 5).source, Ids(static_cast<size_t>(length), 3));
  }
  EXPECT_EQ(refused, 30);
}

TEST(Tasks, IndicesAreChecked) {
  const TaskDataset set({.pairs = 10}, Split::train);
  expect_error<IndexError>([&] { set.get(0, 10); }, {"pair 10 is not in 0 to 9"});
  expect_error<IndexError>([&] { set.get(0, -1); }, {"pair -1"});
  expect_error<IndexError>([&] { set.get(-1, 0); }, {"epoch -1"});
}

TEST(Tasks, FingerprintsTellDataApart) {
  std::set<std::string> seen;
  for (const TaskOptions& options :
       {TaskOptions{}, TaskOptions{.task = Task::copy}, TaskOptions{.min_length = 4},
        TaskOptions{.max_length = 11}, TaskOptions{.vocab = 21}, TaskOptions{.pairs = 9},
        TaskOptions{.fresh = true}, TaskOptions{.seed = 1}})
    seen.insert(TaskDataset(options, Split::train).fingerprint());
  seen.insert(TaskDataset({}, Split::valid).fingerprint());
  EXPECT_EQ(seen.size(), 9u);
}

}  // namespace
}  // namespace heed::data
