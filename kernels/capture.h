// What repeats a sequence of kernels, copies and fills as one CUDA graph, and the host memory that a device
// copies to and from on its own. Defined by kernels/cuda/runtime/capture.cu; docs/cuda_step.md says how it is
// used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <heed/core/base/memory/allocator.h>
#include <heed/kernels/wrong_index.h>

namespace heed::cuda {

/// Memory of device `index` that stays at its addresses until the last owner lets go of it: what is allocated
/// during a capture comes from here (capture_memory). Graphs of one device may share it, since they run one
/// after another. DeviceError if there is no such device.
std::shared_ptr<Allocator> make_arena(int index);

/// The arena of the capture that this thread is making on device `index`; null if it makes none.
std::shared_ptr<Allocator> capture_memory(int index);

/// Work on a device that was recorded once and is repeated by one call.
class Graph {
 public:
  /// Calls `work`, and records what it enqueues on the device instead of doing it. Nothing is done before
  /// launch(). StateError if `work` waits for the device, copies from or to host memory that is not pinned,
  /// or records itself, or if another thread uses the device meanwhile; OutOfMemory if the arena cannot grow.
  /// After an error, as after a success, the device is as it was before.
  Graph(int index, std::shared_ptr<Allocator> arena, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// How many kernels, copies and fills were recorded. A product may be several.
  int64_t nodes() const;

  /// Enqueues all of the work once more, with the memory that it was recorded with.
  void launch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Calls `work`. While this thread captures device `index`, what it enqueues is recorded beside what is
/// recorded next, up to join_side(): the device may do both at once. Until then its memory must neither be
/// given back nor looked at; it takes no Scratch.
void on_side(int index, const std::function<void()>& work);
/// What is enqueued from now on comes after what on_side() has recorded.
void join_side(int index);

/// Host memory that copies need not wait for. OutOfMemory.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

/// Enqueue a copy from or to pinned memory and return; the host memory belongs to the device until an Event
/// that was recorded afterwards has come.
void upload(int index, void* device, const void* pinned, size_t bytes);
void download(int index, void* pinned, const void* device, size_t bytes);

/// What report() writes, and where: bytes from the report's beginning, kReportHeader at least.
struct Piece {
  const void* device;
  size_t bytes;
  size_t place;
};
inline constexpr size_t kReportHeader = sizeof(kernels::WrongIndex);

/// Where the report goes: pinned memory, or what `where`, in the device's memory, points to when it is made.
struct ReportTarget {
  std::byte* pinned;
  std::byte* const* where;  // read if pinned is null
};

/// Enqueues one kernel (one for each 32 pieces) that writes to pinned memory: first of all the first index
/// that a kernel found wrong since the host last asked, for kernels::throw_if_wrong, then the pieces. The
/// memory is the device's until an Event that was recorded afterwards has come.
void report(int index, std::span<const Piece> pieces, const ReportTarget& target);

/// A place in the order of a device's work.
class Event {
 public:
  explicit Event(int index);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// After all that has been enqueued so far.
  void record();
  /// Returns when the device has come to where record() was last called; at once if it never was.
  void wait() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heed::cuda
