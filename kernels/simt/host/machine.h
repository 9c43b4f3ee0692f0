// The state of the emulated multiprocessor. Internal to the emulator.
//
// One cluster runs at a time, which is one block unless the launch says otherwise. The threads of its blocks
// are numbered through, and each is a fiber on the calling OS thread. A fiber runs until it waits and then
// hands over to the next one that can run. Operations of different OS threads take turns (enqueue).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/location.h>

#if defined(__SANITIZE_ADDRESS__)
#define HEED_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEED_EMULATOR_ASAN 1
#endif
#endif

namespace heed::emulator {

class LaunchBody;

constexpr unsigned kMaxThreads = 1024;  // of a block, and here of a cluster
constexpr unsigned kMaxWarps = kMaxThreads / 32;
constexpr unsigned kMaxBlocks = 8;  // of a cluster
constexpr unsigned kNoThread = ~0u;
constexpr unsigned kMaxMbarriers = 48;
constexpr unsigned kMaxBulkLines = 8;  // threads of a cluster that issue bulk copies

enum class State : uint8_t { ready, waiting, polling, done };

struct AsyncCopy {
  void* to;
  const void* from;  // null: zero fill
  unsigned bytes;
  Location at;
};

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  void* asan_frame = nullptr;
  unsigned thread = 0;  // of the cluster
  State state = State::done;
  uint3 index{}, block{};
  const char* waits_in = nullptr;
  Location at{};
  unsigned barrier_result = 0;
  bool has_waited = true;             // for the kernels in front, where its own has to
  std::vector<AsyncCopy> copies;      // issued and not complete, oldest first
  std::vector<unsigned> copy_groups;  // sizes of the committed groups, oldest first
  unsigned open_copies = 0;           // issued since the last commit
};

/// Runs when the last lane of a warp arrives; `operands[lane]` is what that lane passed.
using WarpFunction = void (*)(void* const* operands, uint32_t mask, Location at);

struct Rendezvous {
  uint32_t mask, arrived;
  WarpFunction function;
  const char* what;
  Location at;
  bool orders_memory;
  void* operands[32];
};

struct Warp {
  uint32_t ready, live, polling;
  int rendezvous_count;
  Rendezvous rendezvous[32];
};

enum class Vote : uint8_t { none, count, all, any };

struct BlockBarrier {
  bool active;
  unsigned expected;  // 0: all threads of the block or cluster that have not returned
  unsigned arrived, true_votes;
  Vote vote;
  unsigned first_thread;
  Location at;
  uint32_t waiting[kMaxWarps];
};

struct Machine {
  // the cluster that runs
  unsigned threads = 0, live = 0;
  unsigned blocks = 1, block_threads = 0;
  unsigned live_of_block[kMaxBlocks] = {};
  uint32_t ready_warps = 0, polling_warps = 0;
  unsigned current_warp = 0;
  uint64_t events = 0, events_at_last_poll = 0;  // polling threads look again when something has happened
  int idle_polls = 0, polls = 0;
  Warp warps[kMaxWarps];
  BlockBarrier barriers[kMaxBlocks][16], cluster_barrier;
  std::vector<Fiber> fibers;
  Fiber* current = nullptr;
  // the launch it belongs to
  Location launch;
  size_t dynamic_bytes = 0;
  size_t shared_allowed = 0;  // static and dynamic
  LaunchBody* body = nullptr;
  bool waits_itself = false;
  // the first failure
  bool failed = false;
  std::string message;
};
extern Machine machine;

/// The place of a thread's block in the cluster.
inline unsigned block_of(unsigned thread) { return thread / machine.block_threads; }

// fiber.cpp
void make_stacks(unsigned threads);
void reclaim_stacks();  // after threads were given up in the middle of a function
void prepare_fiber(Fiber& fiber, unsigned thread);
void switch_to(Fiber* from, Fiber* to);  // null is the OS thread's own stack
bool on_fiber_stack(const void* address);

// scheduler.cpp
Fiber* require_fiber(Location at);  // the running fiber; throws outside a kernel
Fiber* pick_next();                 // null if none can run
void make_ready(unsigned warp, uint32_t lanes);
void stop(Fiber* fiber, State state);
void wait(const char* what, Location at);
void yield_if_waiting(Fiber* fiber);
bool may_use_memory();  // of the device: false while the thread has to wait for the kernels in front
void check_has_waited(const void* address, const char* what, Location at);  // before using it; fails
void finish_fiber();
uint32_t random_below(uint32_t limit);
void seed_random(uint64_t seed);

// barrier.cpp, warp.cpp
void reset_barriers();
void release_barriers_without(unsigned block);  // that only a thread lacked which has returned
void complete_rendezvous(unsigned warp, int index);

// shared_memory.cpp
constexpr size_t kArenaBytes = 256 * 1024;  // of a block
void reset_shared_memory();
void check_shared_redzones();                                       // after a cluster; throws
bool in_shared_memory(const void* address, size_t bytes);           // of any block of the cluster
bool in_piece_of_shared_memory(const void* address, size_t bytes);  // that the running block has taken
size_t shared_offset(const void* address);                          // from the start of its block's
size_t cluster_offset(const void* address);                         // from that of the first block's
unsigned block_of_shared(const void* address);                      // whose it is, in the cluster
unsigned char* shared_at(size_t offset);                            // of the running block
/// What lies in shared memory of the cluster's block `block` where `address` does in the running one's; fails
/// if that block has ended.
unsigned char* shared_of_block(const void* address, unsigned block, const char* what, Location at);

// mbarrier.cpp, tensor_copy.cpp, bulk_copy.cpp, warpgroup.cpp, wgmma.cpp
void reset_mbarriers();
void reset_copies();
void reset_bulk_copies();
void reset_warpgroups();
void reset_products();
bool land_copy(uint32_t one_in = 1);  // ends a copy under way, in one of so many calls; false if it does not
void check_copies_landed();           // after a cluster; throws
void finish_bulk_copies();            // likewise
void check_products_waited_for();     // likewise
std::string text_of_mbarriers();      // for a deadlock: what the threads that wait are waiting for
std::string text_of_registers();

// report.cpp
std::string text(Location at);
std::string text(uint3 index);
// The number in the block, and which of a cluster that is.
std::string text_of_thread(unsigned thread);
std::string text_of_threads(unsigned first, unsigned count);
[[noreturn]] void fail(const std::string& what, Location at);  // ends the launch; run_grid throws
[[noreturn]] void throw_deadlock();

}  // namespace heed::emulator
