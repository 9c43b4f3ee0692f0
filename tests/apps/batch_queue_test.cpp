// The queue that makes batches of the requests of several threads, without a server around it.
#include "apps/common/serve/batch_queue.h"

#include <atomic>
#include <latch>
#include <numeric>
#include <stdexcept>

#include <gtest/gtest.h>

namespace heed::apps {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

using Numbers = std::vector<int>;
using Queue = BatchQueue<int, int>;

Numbers doubled(const Numbers& numbers) {
  Numbers results;
  for (const int n : numbers) results.push_back(2 * n);
  return results;
}

int only(std::vector<std::future<int>> results) { return results.at(0).get(); }

TEST(BatchQueue, ThreadsGetTheirOwnResults) {
  std::atomic<size_t> batches = 0;
  Queue queue({.max_batch = 16, .gather = milliseconds(1)}, [&](const Numbers& numbers) {
    ++batches;
    EXPECT_LE(numbers.size(), 16u);
    return doubled(numbers);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) EXPECT_EQ(only(queue.submit({1000 * t + i})), 2 * (1000 * t + i));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(batches, 800u);
  EXPECT_EQ(queue.waiting(), 0u);
}

TEST(BatchQueue, WaitsForOthersAndForNoneWhenTheBatchIsFull) {
  std::vector<Numbers> batches;
  Queue queue({.max_batch = 3, .gather = hours(1)}, [&](const Numbers& numbers) {
    batches.push_back(numbers);
    return doubled(numbers);
  });
  auto one = queue.submit({1});
  auto two = queue.submit({2, 3});  // without these the first would wait for an hour
  EXPECT_EQ(one[0].get(), 2);
  EXPECT_EQ(two[1].get(), 6);
  EXPECT_EQ(batches, (std::vector<Numbers>{{1, 2, 3}}));
}

TEST(BatchQueue, OneAloneIsComputedAfterAWhile) {
  Queue queue({.gather = milliseconds(5)}, doubled);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(only(queue.submit({4})), 8);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(5));
}

TEST(BatchQueue, WhatCannotBeTogetherKeepsItsOrder) {
  std::latch started(1), go_on(1);
  std::vector<Numbers> batches;
  Queue queue(
      {.max_batch = 3, .gather = milliseconds(0)},
      [&](const Numbers& numbers) {
        if (numbers == Numbers{0}) {
          started.count_down();
          go_on.wait();
        }
        batches.push_back(numbers);
        return doubled(numbers);
      },
      [](int a, int b) { return a % 2 == b % 2; });
  auto first = queue.submit({0});
  started.wait();
  auto others = queue.submit({1, 2, 3, 4, 5, 7, 6});
  EXPECT_EQ(queue.waiting(), 7u);
  go_on.count_down();
  for (size_t i = 0; i < others.size(); ++i) others[i].wait();
  EXPECT_EQ(batches, (std::vector<Numbers>{{0}, {1, 3, 5}, {2, 4, 6}, {7}}));
}

TEST(BatchQueue, TakesAllRequestsOrNone) {
  std::latch started(1), go_on(1);
  Queue queue({.max_batch = 1, .max_waiting = 3, .gather = milliseconds(0)}, [&](const Numbers& numbers) {
    if (numbers == Numbers{0}) {
      started.count_down();
      go_on.wait();
    }
    return doubled(numbers);
  });
  auto first = queue.submit({0});
  started.wait();
  auto two = queue.submit({1, 2});
  EXPECT_THROW(queue.submit({3, 4}), QueueFull);
  EXPECT_EQ(queue.waiting(), 2u);
  auto third = queue.submit({3});
  EXPECT_THROW(queue.submit({4}), QueueFull);
  go_on.count_down();
  EXPECT_EQ(third[0].get(), 6);
  EXPECT_EQ(two[1].get(), 4);
}

TEST(BatchQueue, AnErrorReachesTheRequestThatCausedIt) {
  Queue queue({.max_batch = 3, .gather = hours(1)}, [](const Numbers& numbers) {
    for (const int n : numbers)
      if (n < 0) throw std::runtime_error("negative");
    return doubled(numbers);
  });
  auto results = queue.submit({1, -1, 3});
  EXPECT_EQ(results[0].get(), 2);
  EXPECT_THROW(results[1].get(), std::runtime_error);
  EXPECT_EQ(results[2].get(), 6);
  Queue short_of_results({.gather = milliseconds(0)}, [](const Numbers&) { return Numbers{}; });
  EXPECT_THROW(only(short_of_results.submit({1})), std::out_of_range);
}

TEST(BatchQueue, CloseFinishesWhatWaits) {
  Queue queue({.max_batch = 2, .gather = hours(1)}, doubled);
  auto results = queue.submit({1, 2, 3});
  queue.close();  // does not wait for the hour
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_EQ(results[at].wait_for(milliseconds(0)), std::future_status::ready);
    EXPECT_EQ(results[at].get(), 2 * (i + 1));
  }
  EXPECT_THROW(queue.submit({4}), QueueClosed);
  queue.close();
}

}  // namespace
}  // namespace heed::apps
