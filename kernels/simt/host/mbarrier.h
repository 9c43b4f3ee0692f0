// The mbarriers of the block that runs, as copies to shared memory see them. Internal to the emulator.
#pragma once

#include <cstdint>

#include <heed/kernels/simt/host/machine.h>

namespace heed::emulator {

struct Mbarrier {
  uint64_t* word;
  unsigned index;  // among the block's
  uint32_t arrivals, pending;
  uint32_t phase;                       // from 0
  uint64_t announced, issued, arrived;  // bytes in this phase: expected, of copies begun, of copies done
  unsigned owner;                       // the thread that initialised it
  bool fenced;                          // and has made that known
  Location at;
  uint32_t waiting[kMaxWarps],
      leaving[kMaxWarps];  // threads in this phase's wait, in that of the phase before
};

/// The mbarrier at `word`; fails if it is none that `thread` may use. A copy is by the asynchronous proxy.
Mbarrier& find_mbarrier(uint64_t& word, unsigned thread, bool for_copy, const char* what, Location at);
void begin_bytes(Mbarrier& barrier, uint32_t bytes, Location at);
void complete_bytes(Mbarrier& barrier, uint32_t bytes);

}  // namespace heed::emulator
