// Runs the clusters of a launch one after another: its blocks, unless it says that several belong together.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/launch.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/order.h>
#include <heed/kernels/simt/host/warpgroup.h>

namespace heed::emulator {

Monitor* monitor;

namespace {

// The value of an environment variable, which must be one of `words`; its place among them, or `unset`.
template <size_t N>
size_t choice(const char* variable, const char* const (&words)[N], size_t unset) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return unset;
  std::string expected;
  for (size_t i = 0; i < N; ++i) {
    if (strcmp(value, words[i]) == 0) return i;
    expected += (i == 0 ? "" : i + 1 < N ? ", " : " or ") + std::string(words[i]);
  }
  throw Error(std::string("emulator: ") + variable + " is '" + value + "'; expected " + expected);
}

uint64_t seed_from_environment(uint64_t unset) {
  const char* const value = std::getenv("HEED_SIMT_SEED");
  if (value == nullptr || *value == '\0') return unset;
  uint64_t seed = 0;
  const char* const end = value + strlen(value);
  const auto [stop, error] = std::from_chars(value, end, seed);
  if (error != std::errc() || stop != end)
    throw Error(std::string("emulator: HEED_SIMT_SEED is '") + value +
                "'; expected a whole number below 2^64");
  return seed;
}

Config config_from_environment() {
  constexpr const char* kOrders[] = {"forward", "reverse", "random"};
  constexpr const char* kTimes[] = {"eager", "deferred"};
  constexpr const char* kArchitectures[] = {"75", "80", "86", "90"};
  constexpr const char* kDrivers[] = {"right", "old", "none"};
  Config c;
  c.order = static_cast<Order>(choice("HEED_SIMT_ORDER", kOrders, static_cast<size_t>(c.order)));
  c.async = static_cast<Async>(choice("HEED_SIMT_ASYNC", kTimes, static_cast<size_t>(c.async)));
  c.seed = seed_from_environment(c.seed);
  c.compute_capability = std::atoi(kArchitectures[choice("HEED_SIMT_ARCH", kArchitectures, 1)]);
  c.driver = static_cast<Driver>(choice("HEED_SIMT_DRIVER", kDrivers, static_cast<size_t>(c.driver)));
  return c;
}

void check_limits(const Launch& launch) {
  const auto refuse = [&](const std::string& what) {
    throw Error("emulator: invalid launch configuration: " + what + " at " + text(launch.at));
  };
  const dim3 &grid = launch.grid, &block = launch.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || block.z > 64 || block.x > kMaxThreads || block.y > kMaxThreads)
    refuse("block " + text(uint3{block.x, block.y, block.z}) + ", expected 1 to 1024 threads and z up to 64");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    refuse("grid " + text(uint3{grid.x, grid.y, grid.z}) +
           ", expected 1 to 2147483647 x 65535 x 65535 blocks");
  if (launch.cluster != 1) {
    require_hopper("a cluster", launch.at);
    if (launch.cluster == 0 || launch.cluster > kMaxBlocks || grid.x % launch.cluster != 0)
      refuse("clusters of " + std::to_string(launch.cluster) + " blocks in a grid of " +
             text(uint3{grid.x, grid.y, grid.z}) + ", expected up to 8 that divide its first dimension");
    if (threads % kGroupThreads != 0 || threads * launch.cluster > kMaxThreads)
      refuse("clusters of " + std::to_string(launch.cluster) + " blocks of " + std::to_string(threads) +
             " threads; the emulator takes whole warpgroups, 1024 threads together");
  }
  if (launch.shared_bytes > shared_limit())
    refuse(std::to_string(launch.shared_bytes) + " bytes of dynamic shared memory, the limit is " +
           std::to_string(shared_limit()));
  if (launch.shared_bytes > dynamic_shared_limit(launch.kernel))
    refuse(std::to_string(launch.shared_bytes) +
           " bytes of dynamic shared memory, cudaFuncSetAttribute allowed " +
           std::to_string(dynamic_shared_limit(launch.kernel)));
}

void start_threads() {
  Machine& m = machine;
  const unsigned warps = (m.threads + 31) / 32;
  for (unsigned w = 0; w < warps; ++w) {
    const uint32_t lanes = (w + 1) * 32 <= m.threads ? ~0u : (1u << (m.threads & 31)) - 1;
    m.warps[w].live = m.warps[w].ready = lanes;
    m.warps[w].polling = 0;
    m.warps[w].rendezvous_count = 0;
    m.ready_warps |= 1u << w;
  }
  for (unsigned t = 0; t < m.threads; ++t) {
    prepare_fiber(m.fibers[t], t);
    const unsigned in_block = t % m.block_threads;
    m.fibers[t].index.x = in_block % blockDim.x;
    m.fibers[t].index.y = in_block / blockDim.x % blockDim.y;
    m.fibers[t].index.z = in_block / (blockDim.x * blockDim.y);
    m.fibers[t].block = {blockIdx.x + block_of(t), blockIdx.y, blockIdx.z};
  }
  m.current_warp = config().order == Order::reverse ? warps - 1 : 0;
}

// Its first block is in blockIdx.
void run_cluster() {
  Machine& m = machine;
  m.live = m.threads;
  std::fill_n(m.live_of_block, m.blocks, m.block_threads);
  m.ready_warps = m.polling_warps = 0;
  m.events = m.events_at_last_poll = 0;
  m.idle_polls = m.polls = 0;
  m.failed = false;
  reset_shared_memory();
  reset_barriers();
  reset_mbarriers();
  reset_copies();
  reset_bulk_copies();
  reset_warpgroups();
  reset_products();
  if (monitor) monitor->block_begin(m.threads);
  start_threads();
  stats().blocks += m.blocks;
  stats().threads += m.threads;
  switch_to(nullptr, pick_next());
  if (m.failed || m.live != 0) reclaim_stacks();
  if (m.failed) throw Error(m.message);
  if (m.live != 0) throw_deadlock();
  check_copies_landed();
  finish_bulk_copies();
  check_products_waited_for();
  check_shared_redzones();
}

// The order of the clusters: a permutation of [0, count) that needs no table.
uint64_t cluster_number(uint64_t i, uint64_t count, uint64_t stride, uint64_t shift) {
  if (config().order == Order::forward) return i;
  if (config().order == Order::reverse) return count - 1 - i;
  return (static_cast<unsigned __int128>(i) * stride + shift) % count;
}

uint64_t gcd(uint64_t a, uint64_t b) { return b == 0 ? a : gcd(b, a % b); }

}  // namespace

Config& config() {
  static Config settings = config_from_environment();
  return settings;
}

size_t shared_limit() {
  if (config().max_shared_bytes != 0) return config().max_shared_bytes;
  switch (config().compute_capability) {
    case 75:
      return 64 * 1024;
    case 80:
      return 163 * 1024;
    case 86:
      return 99 * 1024;
    default:
      return 227 * 1024;
  }
}

Stats& stats() {
  static Stats counts{};
  return counts;
}

void each_schedule(const std::function<void(const std::string&)>& run) {
  struct Restore {
    Config saved = config();
    ~Restore() { config() = saved; }
  } restore;
  struct Schedule {
    const char* name;
    Order order;
    Async async;
    uint64_t seed;
  };
  constexpr Schedule kSchedules[] = {{"forward, deferred copies", Order::forward, Async::deferred, 1},
                                     {"reverse, eager copies", Order::reverse, Async::eager, 1},
                                     {"random 1, deferred copies", Order::random, Async::deferred, 1},
                                     {"random 2, eager copies", Order::random, Async::eager, 2}};
  for (const Schedule& schedule : kSchedules) {
    config().order = schedule.order;
    config().async = schedule.async;
    config().seed = schedule.seed;
    run(schedule.name);
  }
}

void run_grid(const Launch& launch) {
  if (on_fiber_stack(__builtin_frame_address(0))) fail("a kernel launched from a kernel", launch.at);
  check_limits(launch);
  Machine& m = machine;
  gridDim = launch.grid;
  blockDim = launch.block;
  m.blocks = launch.cluster;
  m.block_threads = launch.block.x * launch.block.y * launch.block.z;
  m.threads = m.blocks * m.block_threads;
  m.dynamic_bytes = launch.shared_bytes;
  m.shared_allowed = dynamic_shared_is_set(launch.kernel) ? shared_limit() : kSharedWithoutAsking;
  m.launch = launch.at;
  m.body = launch.body.get();
  m.waits_itself = launch.waits_itself;
  make_stacks(m.threads);
  seed_random(config().seed);
  ++stats().launches;
  stats().early_launches += launch.early;
  stream_order().launched_at(launch.at);
  if (monitor) monitor->launch_begin(launch.kernel, launch.body.get(), launch.body_bytes);
  const uint64_t count = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z / m.blocks;
  uint64_t stride = count / 2 + random_below(1u << 20);
  while (gcd(stride, count) != 1) ++stride;
  const uint64_t shift = random_below(1u << 20);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t number = cluster_number(i, count, stride, shift) * m.blocks;
    blockIdx.x = static_cast<unsigned>(number % gridDim.x);
    blockIdx.y = static_cast<unsigned>(number / gridDim.x % gridDim.y);
    blockIdx.z = static_cast<unsigned>(number / gridDim.x / gridDim.y);
    run_cluster();
  }
  check_device_redzones(launch.at);
}

}  // namespace heed::emulator
