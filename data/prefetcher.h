// A thread that prepares a loader's next batch.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <heed/data/batch_order.h>

namespace heed::data {

/// Prepares one batch ahead on a thread of its own.
template <class B>
class Prefetcher {
 public:
  /// The batch at a state, which moves on; nothing at the end of an epoch. Called by the thread alone, and
  /// by nobody between drop() and the next take().
  using Produce = std::function<std::optional<B>(LoaderState&)>;

  /// std::system_error where the system gives no thread.
  explicit Prefetcher(Produce produce) : produce_(std::move(produce)), thread_([this] { run(); }) {}

  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// The batch at `state`, which moves on; then the one after it is begun.
  std::optional<B> take(LoaderState& state) {
    std::unique_lock lock(mutex_);
    if (slot_ == Slot::empty) request(state);
    changed_.wait(lock, [&] { return slot_ == Slot::ready; });
    slot_ = Slot::empty;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    std::optional<B> batch = std::move(batch_);
    state = state_;
    request(state);
    return batch;
  }

  /// Waits until nothing is under way and forgets what was prepared.
  void drop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slot_ != Slot::requested; });
    slot_ = Slot::empty;
    error_ = nullptr;
  }

 private:
  enum class Slot { empty, requested, ready };

  void request(const LoaderState& state) {
    state_ = state;
    slot_ = Slot::requested;
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || slot_ == Slot::requested; });
      if (stop_) return;
      LoaderState state = state_;
      std::optional<B> batch;
      std::exception_ptr error;
      lock.unlock();
      try {
        batch = produce_(state);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      state_ = state;
      batch_ = std::move(batch);
      error_ = error;
      slot_ = Slot::ready;
      changed_.notify_all();
    }
  }

  Produce produce_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Slot slot_ = Slot::empty;
  bool stop_ = false;
  LoaderState state_;
  std::optional<B> batch_;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace heed::data
