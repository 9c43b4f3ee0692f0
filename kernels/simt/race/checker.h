// The race checker: told of every access by the instrumentation that -fsanitize=thread compiles in
// (callbacks.cpp), and of all synchronisation by the emulator. Finds data races by what must happen before
// what, whatever order this run took, also between streams; reads of memory that nobody wrote; accesses out
// of bounds, to host memory, and during a copy.
#pragma once

#include <string>
#include <unordered_map>

#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/race/clocks.h>
#include <heed/kernels/simt/race/shadow.h>
#include <heed/kernels/simt/race/sites.h>

namespace heed::emulator {

class Checker final : public Monitor {
 public:
  void launch_begin(const void* kernel, const void* arguments, size_t argument_bytes) override;
  void block_begin(unsigned threads) override;
  void shared_piece(size_t offset, size_t bytes) override { shadow_.add_piece(offset, bytes); }

  void block_barrier() override { clocks_.block_barrier(); }
  void warp_barrier(unsigned warp, uint32_t lanes) override { clocks_.warp_barrier(warp, lanes); }
  void arrive(const void* barrier, unsigned thread) override { clocks_.arrive(barrier, thread); }
  void leave(const void* barrier, unsigned thread) override { clocks_.leave(barrier, thread); }
  void barrier_done(const void* barrier) override { clocks_.barrier_done(barrier); }
  void fence(unsigned thread) override { clocks_.fence(thread); }

  void access(const void* address, size_t bytes, bool write, unsigned thread, Location at) override;
  void atomic(const void* address, size_t bytes, unsigned thread, Location at) override;
  void copy_begin(const void* to, size_t bytes, unsigned thread, Location at) override;
  void copy_end(const void* to, size_t bytes, unsigned thread, Location at) override;

  void fence_async(unsigned thread) override { clocks_.fence_async(thread); }
  void fence_async_global(unsigned thread) override { clocks_.fence_async_global(thread); }
  void phase_end(const void* mbarrier) override { clocks_.phase_end(mbarrier); }
  void phase_seen(const void* mbarrier, unsigned number, uint32_t phases, unsigned thread) override;
  void box_copy(const void* to, size_t bytes, unsigned mbarrier, uint32_t phase, unsigned thread,
                Location at) override;
  void product_read(const void* address, size_t bytes, unsigned group, uint32_t product,
                    Location at) override;
  void products_seen(unsigned group, uint32_t products, unsigned thread) override {
    clocks_.learn(clocks_.of_group(group, products), thread);
  }

  void bulk_copy(const void* from, const void* to, size_t bytes, bool adds, unsigned line, uint32_t copy,
                 unsigned thread, Location at) override;
  void bulk_seen(unsigned line, uint32_t copies, bool written, unsigned thread) override {
    clocks_.learn(clocks_.of_bulk_reads(line, copies), thread);
    if (written) clocks_.learn(clocks_.of_bulk_writes(line, copies), thread);
  }

  void region_added(void* address, size_t bytes, bool device_only) override;
  void region_removed(void* address) override { shadow_.remove_region(static_cast<unsigned char*>(address)); }
  void range_used(const void* address, size_t bytes, bool write) override;
  void range_poisoned(const void* address, size_t bytes) override;
  Traffic traffic(const void* address) override;

  /// An instrumented load or store.
  void instrumented(const void* address, size_t bytes, bool write, const void* return_address);

 private:
  struct Use {  // an access under way
    const void* address;
    size_t bytes;
    bool write;
    Access by;
    // Where an agent does it on behalf of that thread: its moment, to which later accesses are compared.
    const Moment* agent = nullptr;
    bool counted = false;  // in the traffic already

    Access recorded() const { return agent == nullptr ? by : Access{*agent, by.site, false}; }
  };

  // What a function of the emulator was told of, before the instrumentation sees it do it.
  struct Announced {
    const void* address = nullptr;
    size_t bytes = 0, left = 0;  // of which so many have not been seen
    bool write = false;
    unsigned thread = 0;
  };

  static void count(Region& region, const Use& use);
  Access access_by(unsigned thread, uint32_t site, bool atomic) const {
    return {clocks_.now(thread), site, atomic};
  }
  template <class F>
  void check(const Use& use, F each);
  void touch(const Use& use);
  void touch_cell(Cell& cell, Space space, const void* address, const Use& use);
  void check_streams(Cell& cell, const void* address, bool write, const Use* use);
  bool published(const Cell& cell, const Access& earlier, const Access& now) const;
  void require_shown(const Cell& cell, Space space, const void* address, const Use& use);
  bool enter_block(Cell& cell, Space space, const void* address, const Use& use);
  void record_read(Cell& cell, const Use& use);
  void check_proxy(const Cell& cell, Space space, const void* address, const Use& use);
  bool skipped(const void* address) const;
  bool before(const Access& earlier, const Access& now) const {
    return clocks_.before(earlier.moment, now.moment.thread);
  }

  std::string who(const Access& by) const;
  std::string where(Space space, const void* address);
  std::string by_whom(const Use& use) const { return who(use.recorded()); }
  static const char* verb(const Use& use);

  Clocks clocks_;
  Shadow shadow_;
  Sites sites_;
  uint32_t launch_ = 0, block_ = 0;  // launch_ is the operation's number in StreamOrder
  // By the blocks of the launch, at each address of their atomics.
  std::unordered_map<uint32_t, std::unordered_map<const void*, Snapshot>> published_;
  const char* arguments_ = nullptr;
  size_t argument_bytes_ = 0;
  Announced announced_;
};

}  // namespace heed::emulator
