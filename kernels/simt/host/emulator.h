// How a test steers the emulator and what it can ask of it. Kernels do not include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace heed::emulator {

/// A mistake in a kernel or its launch: what, at which source line, in which block and thread. Thrown by
/// launch().
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The order in which the blocks of a grid, and the threads of a block that could run, take their turns.
enum class Order : uint8_t { forward, reverse, random };

/// When an asynchronous copy or product happens: as it is issued, or as late as its wait allows. Both are
/// legal on a GPU.
enum class Async : uint8_t { eager, deferred };

/// What a program finds on its machine: the device, a driver too old for it, or no device.
enum class Driver : uint8_t { right, old, none };

struct Config {
  Order order = Order::forward;
  Async async = Async::deferred;
  uint64_t seed = 1;                       // of Order::random
  bool strict_exit = false;                // __syncthreads after a thread has returned is an error
  size_t max_shared_bytes = 0;             // of a block; 0: what the compute capability has
  size_t stack_bytes = 0;                  // of a CUDA thread; 0: 64 KiB (256 KiB with AddressSanitizer)
  size_t device_memory = size_t{4} << 30;  // cudaMalloc fails beyond
  int compute_capability = 80;             // what the device properties say
  Driver driver = Driver::right;           // what cudaGetDeviceCount says
};

/// The settings of the launches to come. At start from HEED_SIMT_ORDER=forward|reverse|random,
/// HEED_SIMT_ASYNC=eager|deferred, HEED_SIMT_SEED=n, HEED_SIMT_ARCH=75|80|86|90 and
/// HEED_SIMT_DRIVER=right|old|none; Error for any other value. Not to be changed while a launch runs.
Config& config();

/// How much shared memory a block may have, static and dynamic together.
size_t shared_limit();

/// What has been executed since the start or the last reset by assignment.
struct Stats {
  uint64_t launches, blocks, threads, switches;
  uint64_t block_barriers, warp_collectives;
  uint64_t ldmatrix_phases;      // reads of eight 16-byte rows
  uint64_t ldmatrix_wavefronts;  // the cycles they take; equal to the phases if no banks conflict
  uint64_t allocations;          // of device memory and of pinned host memory
  uint64_t synchronizations;     // waits of the host for a stream or the device
  uint64_t event_waits;          // waits of the host for an event
  uint64_t graph_launches;
  uint64_t copies;               // cudaMemcpy and its like, those in graphs too
  uint64_t pageable_copies;      // of these, from or to host memory that is not pinned
  uint64_t fills;                // cudaMemset and its like
  uint64_t function_attributes;  // calls of cudaFuncSetAttribute
  uint64_t early_launches;       // of the launches, those that may begin before the one in front has ended
};
Stats& stats();

/// Whether the race checker is linked.
bool checks_races();

/// Whether the build with AddressSanitizer is linked.
bool checks_addresses();

/// Bytes that the threads of kernels have read from an allocation and written to it, each access counted.
struct Traffic {
  uint64_t read = 0, written = 0;
};

/// Since the memory at `address` was allocated. Error without the race checker, and where nothing is
/// allocated.
Traffic traffic(const void* address);

/// Calls `run` under four schedules: forward and a random order with deferred copies, reverse and another
/// random order with eager ones; then puts the settings back. The argument names the schedule, for messages.
void each_schedule(const std::function<void(const std::string& schedule)>& run);

}  // namespace heed::emulator
