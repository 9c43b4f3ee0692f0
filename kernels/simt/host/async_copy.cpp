// cp.async: performed as it is issued or at the wait that makes it visible, whichever the schedule says.
#include <cstring>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/memory.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/ptx.h>

namespace heed::emulator {
namespace {

void perform(const AsyncCopy& copy) {
  if (copy.from)
    memcpy(copy.to, copy.from, copy.bytes);
  else
    memset(copy.to, 0, copy.bytes);
}

}  // namespace

void copy_async(void* shared, const void* global, int bytes, bool valid, Location at) {
  Fiber* fiber = require_fiber(at);
  const unsigned size = static_cast<unsigned>(bytes);
  if (!in_shared_memory(shared, size)) fail("cp_async: the destination is not in shared memory", at);
  if (valid && in_shared_memory(global, 1)) fail("cp_async: the source is in shared memory", at);
  if (valid) check_access(global, size, size, false, "cp_async source", at);
  check_access(shared, size, size, true, "cp_async destination", at);
  const AsyncCopy copy{shared, valid ? global : nullptr, size, at};
  if (monitor) monitor->copy_begin(shared, size, fiber->thread, at);
  if (config().async == Async::eager) perform(copy);
  fiber->copies.push_back(copy);
  ++fiber->open_copies;
}

void commit_copies(Location at) {
  Fiber* fiber = require_fiber(at);
  fiber->copy_groups.push_back(fiber->open_copies);
  fiber->open_copies = 0;
}

void wait_copies(int groups_in_flight, Location at) {
  Fiber* fiber = require_fiber(at);
  const size_t keep = static_cast<size_t>(groups_in_flight);
  if (fiber->copy_groups.size() <= keep) return;
  const auto groups_end = fiber->copy_groups.end() - static_cast<std::ptrdiff_t>(keep);
  size_t complete = 0;
  for (auto group = fiber->copy_groups.begin(); group != groups_end; ++group) complete += *group;
  for (size_t i = 0; i < complete; ++i) {
    const AsyncCopy& copy = fiber->copies[i];
    if (config().async == Async::deferred) perform(copy);
    if (monitor) monitor->copy_end(copy.to, copy.bytes, fiber->thread, copy.at);
  }
  fiber->copies.erase(fiber->copies.begin(), fiber->copies.begin() + static_cast<std::ptrdiff_t>(complete));
  fiber->copy_groups.erase(fiber->copy_groups.begin(), groups_end);
}

}  // namespace heed::emulator
