// What heed keeps of one device. Private to runtime.cu and capture.cu.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <heed/core/base/memory/allocator.h>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/runtime/staging.cuh>
#include <heed/kernels/wrong_index.h>

namespace heed::cuda {

/// A capture under way: who makes it, where its memory comes from, and what may be freed only after it.
struct CaptureState {
  std::thread::id thread;
  std::shared_ptr<Allocator> arena;
  std::vector<void*> to_free;
  bool on_side = false;         // what is enqueued now goes to the second stream,
  bool has_side = false;        // for which the first has to wait yet
  bool checks_indices = false;  // before it; after it: whether its graph may keep one that it does not report
};

/// Never destroyed: the driver may be gone before static destructors run.
class DeviceState {
 public:
  explicit DeviceState(int device);

  const int index, capability, multiprocessors;
  const std::string name;
  Allocator allocator;
  Staging staging;

  /// The stream in which all of the device's work is ordered, or within on_side() the second one. StateError
  /// while another thread captures it.
  cudaStream_t stream() const;
  /// StateError, naming `what`, while this thread captures the stream: a graph cannot hold what waits.
  cudaStream_t stream_outside_capture(const char* what) const;

  /// Where kernels keep the first wrong index, from now on.
  kernels::WrongIndex* expect_wrong_index();
  /// The same for a kernel that reports and clears it; null where no kernel can have kept one.
  kernels::WrongIndex* reported_wrong_index();
  bool checks_indices() const { return checks_indices_; }

  /// One of kCounters in turn.
  unsigned* launch_counter() { return counters_ + next_counter_++ % kCounters; }

  /// The capture that this thread makes; null if it makes none.
  CaptureState* own_capture() const;
  void begin_capture(CaptureState& capture);
  /// Frees what waited for it.
  void end_capture();
  /// The second stream begins after what is in the first, or the first goes on after what is in the second.
  void fork_side();
  void join_side();

 private:
  static constexpr unsigned kCounters = 1024;

  MemorySource source();

  cudaStream_t stream_, side_;
  cudaEvent_t forked_, joined_;
  kernels::WrongIndex* wrong_index_;  // on the device
  unsigned* counters_;                // on the device
  std::atomic<unsigned> next_counter_{0};
  std::atomic<bool> checks_indices_{false};
  std::atomic<CaptureState*> capture_{nullptr};
};

/// DeviceError if there is no such device.
DeviceState& device_state(int index);

}  // namespace heed::cuda
