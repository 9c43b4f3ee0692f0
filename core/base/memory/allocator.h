// Memory for tensors and for the small objects behind them. The caching allocator keeps what was freed, so a
// training loop stops asking the system after its first steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace heed {

/// Bytes and calls of one allocator.
struct MemoryStats {
  int64_t in_use = 0;    // bytes handed out now
  int64_t peak = 0;      // the most handed out since the last reset_peak(); what threads take of the blocks
                         // that they keep is seen late, so up to 1 MiB a thread may be missing
  int64_t cached = 0;    // bytes kept for reuse, never used ones and discarded ones included
  int64_t requests = 0;  // calls of allocate
  int64_t system_calls = 0;  // how many of them had to ask the system
};

/// How memory is handed out: `caching` for speed; `plain` asks the system for each request and fills it with
/// NaN patterns, so that sanitizers and tests see every use of what was never written; `arena` gives nothing
/// back before it is destroyed, for memory whose addresses are written down elsewhere (kernels/capture.h),
/// and fills it if the default kind is plain.
enum class AllocatorKind : uint8_t { caching, plain, arena };

/// HEED_ALLOCATOR=caching|plain as it was at start, caching if unset.
AllocatorKind default_allocator_kind();

/// Where an Allocator gets its memory: the system's heap, or a device's.
struct MemorySource {
  const char* name;                            // for messages: "cpu", "cuda:0"
  std::function<void*(size_t bytes)> acquire;  // aligned to 128; null when there is none
  std::function<void(void* pointer, size_t bytes)> release;
  std::function<void(void* pointer, size_t bytes)> poison;  // fills with 0xff bytes
  size_t segment_bytes = size_t{1} << 25;                   // to ask for at once, to cut large blocks from
  /// Gives the system what is under a part of such a segment, which keeps its addresses; none if that cannot
  /// be.
  std::function<void(void* pointer, size_t bytes)> discard = {};
};

/// Hands out blocks; thread-safe. What was freed serves the next request of its size class, from 512 KiB on
/// requests of any size: large blocks are cut from the source's segments, and joined again. Of the CPU's, a
/// thread keeps the smaller blocks that it freed, up to 1 MiB, for its own next requests, and gives them back
/// when it ends.
class Allocator {
 public:
  explicit Allocator(const MemorySource& source, AllocatorKind kind = default_allocator_kind());
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// At least `bytes` bytes, aligned to 128; never null, 0 bytes included. When there is no memory, gives the
  /// cache back to the system and tries once more, then throws OutOfMemory with what was asked, in use and
  /// cached; nothing has changed then and the call can be repeated.
  void* allocate(size_t bytes);

  /// Takes back what allocate(bytes) gave.
  void deallocate(void* pointer, size_t bytes) noexcept;

  MemoryStats stats() const;
  void reset_peak();

  /// Gives cached memory back to the source, but what other threads keep; an arena keeps it all.
  void release_cached() noexcept;

  /// Fails requests that would take in_use above `bytes` (0: no limit).
  void set_limit(int64_t bytes);

  AllocatorKind kind() const;

 private:
  friend Allocator& cpu_allocator();
  struct State;
  class ThreadUse;
  void let_threads_keep();
  // From and to what all threads share.
  void* allocate_shared(size_t bytes);
  void deallocate_shared(void* pointer, size_t bytes) noexcept;

  std::unique_ptr<State> state_;
};

/// The process's CPU allocator. It is never destroyed, so objects with static lifetime may use it.
Allocator& cpu_allocator();

/// Base of small, often created objects (graph nodes, tensor handles): their memory comes from
/// cpu_allocator().
class Pooled {
 public:
  static void* operator new(size_t bytes) { return cpu_allocator().allocate(bytes); }
  static void operator delete(void* pointer, size_t bytes) noexcept {
    cpu_allocator().deallocate(pointer, bytes);
  }
};

}  // namespace heed
