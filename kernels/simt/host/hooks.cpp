// What only the race checker cares about.
#include <heed/kernels/simt/host/atomics.h>
#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>

#ifdef HEED_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace heed::emulator {

bool checks_races() { return monitor != nullptr; }

bool checks_addresses() {
#ifdef HEED_EMULATOR_ASAN
  return true;
#else
  return false;
#endif
}

Traffic traffic(const void* address) {
  if (!monitor) fail("traffic: the race checker is not linked, which counts it", {});
  return monitor->traffic(address);
}

void thread_fence() {
  if (monitor && machine.current) monitor->fence(machine.current->thread);
}

void check_atomic(void* address, size_t bytes, const char* what, Location at) {
  Fiber* fiber = require_fiber(at);
  --machine.events;  // reading is no event; progress() follows if the value changes
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) fail(std::string(what) + ": misaligned address", at);
#ifdef HEED_EMULATOR_ASAN
  if (__asan_region_is_poisoned(address, bytes))
    fail(std::string(what) + ": out-of-bounds " + (in_shared_memory(address, 1) ? "shared" : "global") +
             " memory",
         at);
#endif
  check_has_waited(address, what, at);
  if (monitor) monitor->atomic(address, bytes, fiber->thread, at);
}

}  // namespace heed::emulator
