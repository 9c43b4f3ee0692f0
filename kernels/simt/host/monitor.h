// What the race checker is told of; it installs itself where it is linked (race/). Internal to the emulator.
#pragma once

#include <cstddef>
#include <cstdint>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/location.h>

namespace heed::emulator {

class Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void launch_begin(const void* kernel, const void* arguments, size_t argument_bytes) = 0;
  virtual void block_begin(unsigned threads) = 0;
  virtual void shared_piece(size_t offset, size_t bytes) = 0;

  // what orders memory
  virtual void block_barrier() = 0;                              // all live threads of the block
  virtual void warp_barrier(unsigned warp, uint32_t lanes) = 0;  // __syncwarp
  virtual void arrive(const void* named_barrier,
                      unsigned thread) = 0;                            // what the thread did is passed on ...
  virtual void leave(const void* named_barrier, unsigned thread) = 0;  // ... to the threads that waited
  virtual void barrier_done(const void* named_barrier) = 0;
  virtual void fence(unsigned thread) = 0;

  // what uses it
  virtual void access(const void* address, size_t bytes, bool write, unsigned thread, Location at) = 0;
  virtual void atomic(const void* address, size_t bytes, unsigned thread, Location at) = 0;
  virtual void copy_begin(const void* to, size_t bytes, unsigned thread, Location at) = 0;
  virtual void copy_end(const void* to, size_t bytes, unsigned thread, Location at) = 0;

  // what the asynchronous proxy does: copies of boxes, over at the end of their mbarrier's phase, and wgmma
  // and bulk copies, over when they were waited for. Mbarriers have numbers in a block, products in a
  // warpgroup, bulk copies in one of the lines of the threads that issue them (both from 1).
  virtual void fence_async(unsigned thread) = 0;
  virtual void fence_async_global(unsigned thread) = 0;
  virtual void phase_end(const void* mbarrier) = 0;
  virtual void phase_seen(const void* mbarrier, unsigned number, uint32_t phases, unsigned thread) = 0;
  virtual void box_copy(const void* to, size_t bytes, unsigned mbarrier, uint32_t phase, unsigned thread,
                        Location at) = 0;
  virtual void product_read(const void* address, size_t bytes, unsigned group, uint32_t product,
                            Location at) = 0;
  virtual void products_seen(unsigned group, uint32_t products, unsigned thread) = 0;

  virtual void bulk_copy(const void* from, const void* to, size_t bytes, bool adds, unsigned line,
                         uint32_t copy, unsigned thread, Location at) = 0;
  virtual void bulk_seen(unsigned line, uint32_t copies, bool written, unsigned thread) = 0;

  // the runtime's side
  virtual void region_added(void* address, size_t bytes, bool device_only) = 0;
  virtual void region_removed(void* address) = 0;
  virtual void range_used(const void* address, size_t bytes, bool write) = 0;  // by a copy, fill or product

  virtual void range_poisoned(const void* address, size_t bytes) = 0;  // as if nobody had written it

  virtual Traffic traffic(const void* address) = 0;
};

/// Null unless the race checker is linked.
extern Monitor* monitor;

}  // namespace heed::emulator
