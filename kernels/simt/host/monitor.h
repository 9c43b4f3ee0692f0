// What the race checker is told of; it installs itself where it is linked (race/). Internal to the emulator.
#pragma once

#include <cstddef>

#include <heed/kernels/simt/host/location.h>

namespace heed::emulator {

class Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void launch_begin(const void* kernel, const void* arguments, size_t argument_bytes) = 0;
  virtual void block_begin(unsigned threads) = 0;
  virtual void shared_piece(size_t offset, size_t bytes) = 0;
  virtual void block_barrier() = 0;  // every live thread has arrived
  virtual void release(const void* object, unsigned thread) = 0;
  virtual void acquire(const void* object, unsigned thread) = 0;
  virtual void access(const void* address, size_t bytes, bool write, unsigned thread, Location at) = 0;
  virtual void atomic(const void* address, size_t bytes, unsigned thread, Location at) = 0;
  virtual void copy_begin(const void* to, size_t bytes, unsigned thread, Location at) = 0;
  virtual void copy_end(const void* to, size_t bytes, unsigned thread, Location at) = 0;
  virtual void fence(unsigned thread) = 0;
  virtual void region_added(void* address, size_t bytes, bool device_only) = 0;
  virtual void region_removed(void* address) = 0;
  virtual void host_write(void* address, size_t bytes) = 0;  // a copy or fill of the runtime
};

/// Null unless the race checker is linked.
extern Monitor* monitor;

}  // namespace heed::emulator
