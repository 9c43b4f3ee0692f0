// Barriers in shared memory whose phases end when all arrivals have come and all announced bytes are there.
#include <cstring>
#include <memory>

#include <heed/kernels/simt/host/mbarrier.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/ptx_hopper.h>
#include <heed/kernels/simt/host/warpgroup.h>

namespace heed::emulator {
namespace {

constexpr uint64_t kInitialised = 0x6d62617272696572;  // what a word holds; the state is kept here
constexpr uint32_t kMax = (1u << 20) - 1;              // of arrivals, and of bytes
std::vector<std::unique_ptr<Mbarrier>> barriers;

std::string place(const Mbarrier& barrier) {
  return "the mbarrier at byte " + std::to_string(shared_offset(barrier.word)) + " (initialised at " +
         text(barrier.at) + ")";
}

// The threads of a set, one after another.
template <class F>
void for_each_thread(const uint32_t (&set)[kMaxWarps], F f) {
  for (unsigned warp = 0; warp < (machine.threads + 31) / 32; ++warp)
    for (uint32_t rest = set[warp]; rest != 0; rest &= rest - 1)
      f(warp * 32 + static_cast<unsigned>(__builtin_ctz(rest)));
}

void end_phase_if_complete(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.arrived != barrier.announced) return;
  for_each_thread(barrier.leaving, [&](unsigned thread) {
    fail("phase overrun: phase " + std::to_string(barrier.phase) + " of " + place(barrier) + " ends before " +
             text_of_thread(thread) + " has seen the end of the phase before",
         machine.fibers[thread].at);
  });
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.announced = barrier.issued = barrier.arrived = 0;
  progress();
  if (monitor) monitor->phase_end(&barrier);
  for (unsigned warp = 0; warp < (machine.threads + 31) / 32; ++warp) {
    make_ready(warp, barrier.waiting[warp]);
    barrier.leaving[warp] = barrier.waiting[warp];
    barrier.waiting[warp] = 0;
  }
}

void check_bytes(const Mbarrier& barrier, Location at) {
  if (barrier.pending == 0 && barrier.issued > barrier.announced)
    fail("copies of " + std::to_string(barrier.issued) + " bytes in phase " + std::to_string(barrier.phase) +
             " of " + place(barrier) + ", more than the " + std::to_string(barrier.announced) +
             " that mbarrier_arrive_expect announced",
         at);
}

void make_known(unsigned thread) {
  for (const auto& barrier : barriers) barrier->fenced |= barrier->owner == thread;
}

}  // namespace

Mbarrier& find_mbarrier(uint64_t& word, unsigned thread, bool for_copy, const char* what, Location at) {
  for (const auto& barrier : barriers) {
    if (barrier->word != &word) continue;
    if (word != kInitialised) fail(std::string(what) + ": " + place(*barrier) + " was overwritten", at);
    if (!barrier->fenced && (for_copy || barrier->owner != thread))
      fail(std::string(what) + ": no mbarrier_init_fence() by " + text_of_thread(barrier->owner) +
               " after it initialised " + place(*barrier),
           at);
    if (monitor) monitor->access(&word, sizeof word, false, thread, at);  // not before its initialisation
    return *barrier;
  }
  fail(std::string(what) + ": the mbarrier is not initialised", at);
}

void begin_bytes(Mbarrier& barrier, uint32_t bytes, Location at) {
  barrier.issued += bytes;
  check_bytes(barrier, at);
}

void complete_bytes(Mbarrier& barrier, uint32_t bytes) {
  barrier.arrived += bytes;
  end_phase_if_complete(barrier);
}

void init_mbarrier(uint64_t& word, uint32_t arrivals, Location at) {
  Fiber* fiber = require_fiber(at);
  require_hopper("mbarrier_init", at);
  if (!in_shared_memory(&word, sizeof word)) fail("mbarrier_init: the mbarrier is not in shared memory", at);
  if (reinterpret_cast<uintptr_t>(&word) % 8 != 0)
    fail("mbarrier_init: misaligned address, expected a multiple of 8", at);
  if (arrivals == 0 || arrivals > kMax)
    fail("mbarrier_init: " + std::to_string(arrivals) + " arrivals, expected 1 to " + std::to_string(kMax),
         at);
  for (const auto& barrier : barriers)
    if (barrier->word == &word) fail("mbarrier_init: " + place(*barrier) + " is in use", at);
  if (barriers.size() == kMaxMbarriers)
    fail("mbarrier_init: the emulator has " + std::to_string(kMaxMbarriers) +
             " mbarriers for a block or cluster",
         at);
  if (monitor) monitor->access(&word, sizeof word, true, fiber->thread, at);
  word = kInitialised;
  const unsigned index = static_cast<unsigned>(barriers.size());
  barriers.push_back(std::make_unique<Mbarrier>(
      Mbarrier{&word, index, arrivals, arrivals, 0, 0, 0, 0, fiber->thread, false, at, {}, {}}));
}

void fence_mbarrier_init(Location at) { make_known(require_fiber(at)->thread); }

void fence_async_shared(Location at) {
  Fiber* fiber = require_fiber(at);
  make_known(fiber->thread);
  if (monitor) monitor->fence_async(fiber->thread);
}

void arrive_mbarrier(uint64_t& word, uint32_t bytes, const char* what, Location at) {
  Fiber* fiber = require_fiber(at);
  Mbarrier& barrier = find_mbarrier(word, fiber->thread, false, what, at);
  if (barrier.pending == 0)
    fail(std::string(what) + ": more than the " + std::to_string(barrier.arrivals) + " arrivals in phase " +
             std::to_string(barrier.phase) + " of " + place(barrier),
         at);
  barrier.announced += bytes;
  if (barrier.announced > kMax)
    fail(std::string(what) + ": " + std::to_string(barrier.announced) + " bytes in a phase, the most are " +
             std::to_string(kMax),
         at);
  --barrier.pending;
  if (monitor) monitor->arrive(&barrier, fiber->thread);
  check_bytes(barrier, at);
  end_phase_if_complete(barrier);
}

void arrive_mbarrier_at(uint64_t& word, uint32_t block, Location at) {
  constexpr const char* kWhat = "mbarrier_arrive_at";
  require_fiber(at);
  require_hopper(kWhat, at);
  arrive_mbarrier(*reinterpret_cast<uint64_t*>(shared_of_block(&word, block, kWhat, at)), 0, kWhat, at);
}

void wait_mbarrier(uint64_t& word, uint32_t parity, Location at) {
  Fiber* fiber = require_fiber(at);
  Mbarrier& barrier = find_mbarrier(word, fiber->thread, false, "mbarrier_wait", at);
  if (parity > 1) fail("mbarrier_wait: parity " + std::to_string(parity) + ", expected 0 or 1", at);
  if ((barrier.phase & 1) == parity) {
    const unsigned warp = fiber->thread >> 5;
    const uint32_t lane = 1u << (fiber->thread & 31);
    barrier.waiting[warp] |= lane;
    wait("mbarrier_wait", at);
    barrier.leaving[warp] &= ~lane;
  }
  if (monitor) monitor->phase_seen(&barrier, barrier.index, barrier.phase, fiber->thread);
}

void reset_mbarriers() { barriers.clear(); }

std::string text_of_mbarriers() {
  std::string lines;
  for (const auto& barrier : barriers) {
    bool awaited = false;
    for_each_thread(barrier->waiting, [&](unsigned) { awaited = true; });
    if (!awaited) continue;
    lines += "\n  phase " + std::to_string(barrier->phase) + " of " + place(*barrier) + " lacks " +
             std::to_string(barrier->pending) + " of " + std::to_string(barrier->arrivals) +
             " arrivals and " + std::to_string(barrier->announced - barrier->arrived) + " of " +
             std::to_string(barrier->announced) + " bytes";
  }
  return lines;
}

}  // namespace heed::emulator
