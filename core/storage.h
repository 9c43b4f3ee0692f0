// The memory behind tensors, and the calls that reach the memory of each device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <heed/core/base/device.h>
#include <heed/core/base/memory/allocator.h>
#include <heed/core/base/memory/ref_ptr.h>
#include <heed/kernels/int8.h>
#include <heed/kernels/packed_copies.h>

namespace heed {

/// While one lives on a thread, products there keep no packed copies of parameters: for a text that is made
/// alone, a row at a time, to which copies bring nothing but a second set of the weights in memory.
class [[nodiscard]] NoPackedCopies {
 public:
  NoPackedCopies() : outer_(std::exchange(active_, true)) {}
  ~NoPackedCopies() { active_ = outer_; }
  NoPackedCopies(const NoPackedCopies&) = delete;
  NoPackedCopies& operator=(const NoPackedCopies&) = delete;

  static bool active() { return active_; }

 private:
  static inline thread_local bool active_ = false;
  bool outer_;
};

/// A block of memory on one device with a version that counts the writes into it. Views of a tensor share its
/// storage, hence its version; the slots of a parameter arena are parts with a version of their own.
class Storage : public RefCounted, public Pooled, private kernels::PackedCopies {
 public:
  /// Uninitialised memory, during the capture of a step from its arena. OutOfMemory, DeviceError.
  Storage(Device device, int64_t bytes);
  /// The part [offset, offset + bytes) of `whole`, which it keeps alive.
  Storage(RefPtr<Storage> whole, int64_t offset, int64_t bytes);
  /// Of a matrix [rows, cols] that is kept as 8-bit integers in `memory` (core/int8_weight.h): it has no
  /// data().
  Storage(RefPtr<Storage> memory, kernels::Int8Matrix matrix);
  ~Storage() override;

  std::byte* data() const { return data_; }
  /// What is there in place of data(); null in other memory.
  const kernels::Int8Matrix* int8() const { return data_ ? nullptr : &int8_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_part() const { return static_cast<bool>(whole_); }
  /// Whether the capture of a step made it, whose repetitions write to it again.
  bool is_captured() const { return static_cast<bool>(arena_); }

  /// Moves with each write that was noted; that of a part also with writes to the whole.
  int64_t version() const { return whole_ ? version_ + whole_->version_ : version_; }
  void bump_version() {
    ++version_;
    drop_copies();
  }

  /// Whether it holds a parameter, which is read again and again, and whose writes are noted.
  void mark_parameter() { is_parameter_ = true; }
  /// What kernels keep of a parameter's matrices, each copy until the next write; null for other memory
  /// and under NoPackedCopies.
  kernels::PackedCopies* packed_copies() {
    return is_parameter_ && !NoPackedCopies::active() ? this : nullptr;
  }

 private:
  struct Copy;
  const std::byte* find(const Matrix& matrix) const override;
  const std::byte* keep(const Matrix& matrix, int64_t bytes, FunctionRef<void(std::byte*)> pack) override;
  void drop_copies() {
    if (copies_.load(std::memory_order_relaxed)) delete_copies();
  }
  void delete_copies();

  std::byte* data_;  // null of int8_
  kernels::Int8Matrix int8_{};
  int64_t bytes_;
  Device device_;
  bool is_parameter_ = false;
  int64_t version_ = 0;
  std::atomic<Copy*> copies_{nullptr};  // a list that grows at its front
  RefPtr<Storage> whole_;
  std::shared_ptr<Allocator> arena_;  // what the memory came from if not the device's allocator
};

/// The allocator of a device. DeviceError where the build or the machine lacks the device.
Allocator& allocator(Device device);

/// CUDA devices that can be used; 0 in a build without CUDA.
int cuda_device_count();

/// "cpu", or the CUDA device's own name; an emulated device says so.
std::string device_name(Device device);

/// Copies between any two devices; returns when `to` may be read.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

/// Sets each byte, on the device's stream.
void fill_bytes(void* to, Device device, int value, int64_t bytes);

/// Whether this thread is recording what the device does, to be repeated (core/runtime/captured_step.h).
bool is_capturing(Device device);

/// Waits for the device's work.
void synchronize(Device device);

}  // namespace heed
