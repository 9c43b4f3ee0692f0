// Requests of several threads, computed together: what arrives within a few milliseconds becomes one batch.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace heed::apps {

struct BatchQueueOptions {
  size_t max_batch = 64;                   // requests computed together, at most
  size_t max_waiting = 256;                // requests that wait for that, at most
  std::chrono::microseconds gather{2000};  // how long the first of a batch waits for others
};

/// More requests wait than may.
class QueueFull : public std::exception {
 public:
  const char* what() const noexcept override { return "too many requests are waiting"; }
};

/// close() has been called.
class QueueClosed : public std::exception {
 public:
  const char* what() const noexcept override { return "no more requests are taken"; }
};

/// A thread that computes the requests of others, those that came first first. All functions may be called by
/// several threads.
template <class Request, class Result>
class BatchQueue {
 public:
  /// A result for each request, in order.
  using Compute = std::function<std::vector<Result>(const std::vector<Request>&)>;
  /// Whether two requests can be in one batch.
  using Together = std::function<bool(const Request&, const Request&)>;

  BatchQueue(
      const BatchQueueOptions& options, Compute compute,
      Together together = [](const Request&, const Request&) { return true; })
      : options_(options),
        compute_(std::move(compute)),
        together_(std::move(together)),
        thread_([this] { work(); }) {}
  ~BatchQueue() { close(); }
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  /// Their results, each as it comes. What `compute` throws for a batch has its requests computed one by one:
  /// each gets its own error. All requests are taken, or none and QueueFull or QueueClosed is thrown.
  std::vector<std::future<Result>> submit(std::vector<Request> requests) {
    std::vector<std::future<Result>> results;
    const std::lock_guard lock(mutex_);
    if (closed_) throw QueueClosed();
    if (requests.size() > options_.max_waiting - waiting_.size()) throw QueueFull();
    for (Request& request : requests) {
      waiting_.push_back({std::move(request), {}, Clock::now()});
      results.push_back(waiting_.back().promise.get_future());
    }
    arrived_.notify_one();
    return results;
  }

  /// Takes no more requests, and returns when all that wait have their results.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_one();
    const std::lock_guard lock(joining_);
    if (thread_.joinable()) thread_.join();
  }

  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Request request;
    std::promise<Result> promise;
    Clock::time_point arrival;
  };

  void work() {
    for (std::vector<Entry> batch = next(); !batch.empty(); batch = next()) answer(batch);
  }

  // Waits for the next batch; empty after close() where nothing is left.
  std::vector<Entry> next() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return {};
    arrived_.wait_until(lock, waiting_.front().arrival + options_.gather,
                        [&] { return closed_ || waiting_.size() >= options_.max_batch; });
    std::vector<Entry> batch;
    std::deque<Entry> others;
    for (Entry& entry : waiting_) {
      const bool fits = batch.empty() || (batch.size() < options_.max_batch &&
                                          together_(batch.front().request, entry.request));
      if (fits)
        batch.push_back(std::move(entry));
      else
        others.push_back(std::move(entry));
    }
    waiting_ = std::move(others);
    return batch;
  }

  void answer(std::vector<Entry>& batch) const {
    std::vector<Request> requests;
    for (const Entry& entry : batch) requests.push_back(entry.request);
    try {
      std::vector<Result> results = compute_(requests);
      for (size_t i = 0; i < batch.size(); ++i) batch[i].promise.set_value(std::move(results.at(i)));
    } catch (...) {
      if (batch.size() == 1) return batch.front().promise.set_exception(std::current_exception());
      for (Entry& entry : batch) answer_alone(entry);
    }
  }

  void answer_alone(Entry& entry) const {
    try {
      entry.promise.set_value(std::move(compute_({entry.request}).at(0)));
    } catch (...) {
      entry.promise.set_exception(std::current_exception());
    }
  }

  const BatchQueueOptions options_;
  const Compute compute_;
  const Together together_;
  mutable std::mutex mutex_;
  std::mutex joining_;
  std::condition_variable arrived_;
  std::deque<Entry> waiting_;
  bool closed_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace heed::apps
