#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/data/tasks.h>

#include "../support/expect_error.h"

namespace heed::data {
namespace {

using Ids = TokenIds;
using test::expect_error;

const Task kTasks[] = {"copy_reverse",         "copy", "reverse",  "sort",   "unique", "shift",
                       "copy | reverse(sort)", "add",  "multiply", "recall", "dyck"};

TEST(Tasks, TargetsByHand) {
  const Ids source{5, 3, 9, 3};
  EXPECT_EQ(Task("copy_reverse").solve(source, 20), (Ids{5, 3, 9, 3, 3, 9, 3, 5}));
  EXPECT_EQ(Task("copy").solve(source, 20), source);
  EXPECT_EQ(Task("reverse").solve(source, 20), (Ids{3, 9, 3, 5}));
  EXPECT_EQ(Task("sort").solve(source, 20), (Ids{3, 3, 5, 9}));
  EXPECT_EQ(Task("add").solve({12, 12, 13, 4}, 20), (Ids{4, 3, 3}));       // 99 + 1 = 100
  EXPECT_EQ(Task("add").solve({4, 5, 13, 6, 7, 8}, 20), (Ids{6, 8, 10}));  // 12 + 345 = 357
  EXPECT_EQ(Task("add").solve({3, 13, 3}, 20), (Ids{3}));                  // 0 + 0 = 0
  EXPECT_EQ(Task("add").solve({3, 3, 13, 3, 3}, 20), (Ids{3}));
  for (const Ids& bad : {Ids{}, Ids{3}, Ids{13}, Ids{3, 13}, Ids{13, 3}, Ids{3, 13, 13, 3}, Ids{3, 13, 14}})
    expect_error<DataError>([&] { Task("add").solve(bad, 20); }, {"task add"});
}

TEST(Tasks, FunctionsCombine) {
  const Ids source{5, 3, 9, 3};
  const auto solved = [&](const char* task) { return Task(task).solve(source, 10); };
  EXPECT_EQ(solved("unique"), (Ids{5, 3, 9}));
  EXPECT_EQ(solved("shift"), (Ids{6, 4, 3, 4}));  // 9 is the last symbol of ten
  EXPECT_EQ(solved("copy | reverse"), solved("copy_reverse"));
  EXPECT_EQ(solved("copy | reverse(unique(sort))"), (Ids{5, 3, 9, 3, 9, 5, 3}));
  EXPECT_EQ(solved("sort(copy | shift)"), (Ids{3, 3, 3, 4, 4, 5, 6, 9}));
  EXPECT_EQ(Task(" copy|reverse( sort )").name(), "copy | reverse(sort)");
  EXPECT_EQ(Task("copy|reverse(copy_reverse)").longest_target(7), 21);
  for (const char* bad : {"", "sum", "copy |", "| copy", "copy copy", "reverse(", "reverse(copy", "copy)",
                          "reverse()", "add | copy", "reverse(add)", "COPY"})
    EXPECT_THROW(Task{bad}, ConfigError) << bad;
  EXPECT_THROW(Task{std::string(300, '(')}, ConfigError);
  expect_error<ConfigError>([] { Task("sum"); }, {"unknown task 'sum'", "copy_reverse", "dyck"});
  std::string deep = "copy";
  for (int i = 0; i < 20; ++i) deep = "sort(" + deep + ")";
  expect_error<ConfigError>([&] { Task{deep}; }, {"nested at most 16"});
}

TEST(Tasks, OtherTargetsByHand) {
  EXPECT_EQ(Task("multiply").solve({12, 12, 14, 12, 12}, 20), (Ids{12, 11, 3, 4}));  // 99 * 99 = 9801
  EXPECT_EQ(Task("multiply").solve({3, 14, 4, 5}, 20), Ids{3});                      // 0 * 12 = 0
  EXPECT_EQ(Task("add").solve({5, 4, 13, 8, 7, 6}, 20, true), (Ids{10, 8, 6}));      // 12 + 345 = 357
  EXPECT_EQ(Task("add").solve({12, 12, 13, 4}, 20, true), (Ids{3, 3, 4}));           // 99 + 1 = 100
  EXPECT_EQ(Task("parity").solve({3, 4, 4, 3, 4}, 5), Ids{4});
  EXPECT_EQ(Task("parity").solve({4, 4}, 5), Ids{3});
  EXPECT_EQ(Task("recall").solve({3, 13, 5, 12, 4, 19, 5}, 20), Ids{12});
  EXPECT_EQ(Task("dyck").solve({3, 5, 6, 7, 3}, 20), (Ids{4, 8, 4}));  // ( [ ] { ( needs ) } )
  EXPECT_EQ(Task("dyck").solve({3, 4}, 20), Ids{});
  expect_error<DataError>([] { Task("parity").solve({3, 5}, 20); }, {"task parity: 5"});
  expect_error<DataError>([] { Task("recall").solve({3, 13, 4}, 20); }, {"no pair has the key 4"});
  expect_error<DataError>([] { Task("recall").solve({3, 13}, 20); }, {"task recall"});
  expect_error<DataError>([] { Task("recall").solve({}, 20); }, {"task recall"});
  for (const Ids& bad : {Ids{4}, Ids{3, 6}, Ids{3, 4, 4}})
    expect_error<DataError>([&] { Task("dyck").solve(bad, 20); }, {"task dyck"});
}

TEST(Tasks, SymbolsAreWrittenAsPeopleDo) {
  const Task add("add"), dyck("dyck"), copy("copy");
  EXPECT_EQ(add.text(Ids{4, 5, 13, 12}), "12+9");
  EXPECT_EQ(Task("multiply").text(Ids{4, 14, 5}), "1×2");
  EXPECT_EQ(add.text(Ids{4, 19}), "1 19") << "none of the task's";
  EXPECT_EQ(dyck.text(Ids{3, 5, 6, 10}), "([]>");
  EXPECT_EQ(copy.text(Ids{3, 17}), "3 17");
  EXPECT_EQ(add.symbols("12+9", 20), (Ids{4, 5, 13, 12}));
  EXPECT_EQ(add.symbols(" 1 2 +  9 ", 20), (Ids{4, 5, 13, 12}));
  EXPECT_EQ(Task("multiply").symbols("1×2", 20), Task("multiply").symbols("1*2", 20));
  EXPECT_EQ(dyck.symbols("([] 11", 20), (Ids{3, 5, 6, 11}));
  EXPECT_EQ(copy.symbols("3 17", 20), (Ids{3, 17}));
  expect_error<DataError>([&] { copy.symbols("3 20", 20); }, {"'20' is no symbol", "3 to 19"});
  expect_error<DataError>([&] { copy.symbols("3 -4", 20); }, {"'-4'"});
  expect_error<DataError>([&] { copy.symbols("2", 20); }, {"'2'"});
  expect_error<DataError>([&] { add.symbols("1-2", 20); }, {"'1-2' is no symbol", "0 to"});
  expect_error<DataError>([&] { add.symbols("1\xC3", 20); }, {"no symbol"});
  expect_error<DataError>([&] { copy.symbols("  ", 20); }, {"holds no symbol"});
}

// Every source has an answer that is a text of its own, and every key is asked for.
TEST(Tasks, RecallAsksForEachPair) {
  const TaskDataset set({.task = "recall", .min_length = 2, .max_length = 8, .pairs = 5000}, Split::train);
  EXPECT_EQ(set.longest_source(), 17);
  EXPECT_EQ(set.longest_target(), 1);
  std::map<size_t, int> asked;
  for (int64_t i = 0; i < set.size(); ++i) {
    const Pair pair = set.get(0, i);
    const std::set<int64_t> keys = [&] {
      std::set<int64_t> found;
      for (size_t k = 0; k + 1 < pair.source.size(); k += 2) found.insert(pair.source[k]);
      return found;
    }();
    EXPECT_EQ(keys.size(), pair.source.size() / 2) << "keys differ";
    for (const int64_t key : keys) EXPECT_LT(key, 11);
    ASSERT_EQ(pair.target.size(), 1u);
    EXPECT_GE(pair.target[0], 11);
    const auto at = std::find(pair.source.begin(), pair.source.end() - 1, pair.source.back());
    ++asked[static_cast<size_t>(at - pair.source.begin()) / 2];
  }
  EXPECT_EQ(asked.size(), 8u);
  expect_error<ConfigError>([] { TaskDataset({.task = "recall", .max_length = 9}, Split::train); },
                            {"9 pairs need as many keys", "has 8"});
}

TEST(Tasks, CountsOfSourcesAreThoseOfAList) {
  const auto listed = [](const char* task, int64_t length, int64_t vocab) {
    const TaskDataset set({.task = task,
                           .min_length = length,
                           .max_length = length,
                           .vocab = vocab,
                           .pairs = 20'000,
                           .valid_pairs = 0},
                          Split::train);
    std::set<Ids> sources;
    for (int64_t i = 0; i < set.size(); ++i) sources.insert(set.get(0, i).source);
    EXPECT_EQ(std::ssize(sources), Task(task).sources(length, length, vocab)) << task;
  };
  listed("copy", 3, 8);
  listed("add", 1, 14);
  listed("parity", 6, 5);
  listed("recall", 2, 8);
  listed("dyck", 5, 7);
}

int64_t number(const Ids& digits) {
  int64_t value = 0;
  for (const int64_t digit : digits) value = 10 * value + digit - 3;
  return value;
}

TEST(Tasks, SumsAreRight) {
  const TaskDataset set({.task = "add", .min_length = 1, .max_length = 9, .pairs = 2000}, Split::train);
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
  for (const Task& task : kTasks) {
    for (const Split split : {Split::train, Split::valid}) {
      const TaskDataset set(
          {.task = task, .min_length = 2, .max_length = 6, .pairs = 500, .valid_pairs = 300}, split);
      EXPECT_EQ(set.size(), split == Split::train ? 500 : 300);
      size_t longest_source = 0, longest_target = 0;
      for (int64_t i = 0; i < set.size(); ++i) {
        const Pair pair = set.get(0, i);
        EXPECT_EQ(pair.target, task.solve(pair.source, 20));
        longest_source = std::max(longest_source, pair.source.size());
        longest_target = std::max(longest_target, pair.target.size());
        EXPECT_GE(pair.source.size(), task.has_numbers() ? 5u : 2u);
        for (const Ids& ids : {pair.source, pair.target})
          for (const int64_t id : ids) EXPECT_TRUE(id >= 3 && id < set.vocab());
        EXPECT_EQ(task.symbols(task.text(pair.source), 20), pair.source);
      }
      EXPECT_EQ(static_cast<int64_t>(longest_source), set.longest_source()) << task.name();
      EXPECT_EQ(static_cast<int64_t>(longest_target), set.longest_target()) << task.name();
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
  for (const Task task : {"copy_reverse", "add"}) {
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
  const TaskDataset set({.task = "copy", .min_length = 3, .max_length = 10, .vocab = 20, .pairs = 40'000},
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
  expect_error<ConfigError>([&] { make({.task = "add", .vocab = 13}); }, {"vocab is 13", "at least 14"});
  expect_error<ConfigError>([&] { make({.task = "multiply", .vocab = 14}); }, {"vocab is 14", "at least 15"});
  expect_error<ConfigError>([&] { make({.last_digit_first = true}); }, {"copy_reverse has no numbers"});
  expect_error<ConfigError>([&] { make({.vocab = int64_t{1} << 40}); }, {"vocab is 1099511627776"});
  expect_error<ConfigError>([&] { make({.pairs = 0}); }, {"pairs is 0"});
  expect_error<ConfigError>([&] { make({.valid_pairs = -1}); }, {"valid_pairs is -1"});
  for (const Task& task : kTasks) EXPECT_EQ(Task(task.name()), task);
}

TEST(Tasks, TooFewSourcesAreRefused) {
  const TaskOptions few{.min_length = 1, .max_length = 2, .vocab = 10, .valid_pairs = 100};
  expect_error<ConfigError>([&] { TaskDataset(few, Split::valid); },
                            {"too few different sources for valid_pairs = 100", "has 56 sources", "found "});
  const TaskOptions add{.task = "add", .min_length = 1, .max_length = 1, .valid_pairs = 100};
  expect_error<ConfigError>([&] { TaskDataset(add, Split::valid); }, {"has 100 sources"});
  // Of sources with one symbol and one length there is a single one: it is in one split, and the other has
  // none.
  int refused = 0;
  for (int64_t length = 1; length <= 30; ++length) {
    const TaskOptions one{
        .task = "copy", .min_length = length, .max_length = length, .vocab = 4, .valid_pairs = 1};
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
       {TaskOptions{}, TaskOptions{.task = "copy"}, TaskOptions{.min_length = 4},
        TaskOptions{.max_length = 11}, TaskOptions{.vocab = 21}, TaskOptions{.pairs = 9},
        TaskOptions{.fresh = true}, TaskOptions{.seed = 1}})
    seen.insert(TaskDataset(options, Split::train).fingerprint());
  seen.insert(TaskDataset({}, Split::valid).fingerprint());
  EXPECT_EQ(seen.size(), 9u);
}

}  // namespace
}  // namespace heed::data
