// Bulk copies from shared to global memory: performed as they are issued or at the waits that end them,
// whichever the schedule says.
#include <cstring>

#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/memory.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/ptx_hopper.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/warpgroup.h>

namespace heed::emulator {
namespace {

struct BulkCopy {
  const void* from;
  void* to;
  uint32_t bytes;
  bool adds;
  Location at;
  std::vector<unsigned char> taken;  // what was read
};

// The copies of one thread, numbered from 1, and its groups: the last copy of each.
struct Line {
  unsigned thread;
  std::vector<BulkCopy> copies;
  std::vector<size_t> groups;
  size_t read = 0, written = 0, waited = 0;  // so many are read, are written, are known to be read
};

std::vector<Line> lines;

void read_until(Line& line, size_t last) {
  for (; line.read < last; ++line.read) {
    BulkCopy& copy = line.copies[line.read];
    const unsigned char* const from = static_cast<const unsigned char*>(copy.from);
    copy.taken.assign(from, from + copy.bytes);
  }
}

void write_until(Line& line, size_t last) {
  read_until(line, last);
  for (; line.written < last; ++line.written) {
    BulkCopy& copy = line.copies[line.written];
    if (!copy.adds) memcpy(copy.to, copy.taken.data(), copy.bytes);
    for (size_t i = 0; copy.adds && i < copy.bytes; i += sizeof(float)) {
      float sum, more;
      unsigned char* const to = static_cast<unsigned char*>(copy.to) + i;
      memcpy(&sum, to, sizeof sum);
      memcpy(&more, copy.taken.data() + i, sizeof more);
      sum += more;
      memcpy(to, &sum, sizeof sum);
    }
    copy.taken = {};
  }
}

Line* line_of(unsigned thread) {
  for (Line& line : lines)
    if (line.thread == thread) return &line;
  return nullptr;
}

void check(const void* global, const void* shared, uint32_t bytes, const char* what, Location at) {
  const auto refuse = [&](const std::string& why) { fail(std::string(what) + ": " + why, at); };
  const auto aligned = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; };
  if (!aligned(global) || !aligned(shared) || bytes % 16 != 0 || bytes == 0)
    refuse("misaligned, addresses and bytes must be multiples of 16");
  if (!in_piece_of_shared_memory(shared, bytes))
    refuse("the " + std::to_string(bytes) + " bytes of the source are not in shared memory");
  const Placement found = placement(global, bytes);
  if (found.kind == MemoryKind::host) refuse("the destination is not in memory of the device");
  if (!found.fits) refuse("the destination exceeds its allocation");
  check_has_waited(global, what, at);
  if (monitor) return;  // it is told of the copy
  check_access(shared, bytes, 16, false, what, at);
  check_access(global, bytes, 16, true, what, at);
}

}  // namespace

void copy_bulk(void* global, const void* shared, uint32_t bytes, bool adds, Location at) {
  Fiber* fiber = require_fiber(at);
  const char* const what = adds ? "bulk_add" : "bulk_store";
  require_hopper(what, at);
  check(global, shared, bytes, what, at);
  Line* line = line_of(fiber->thread);
  if (line == nullptr) {
    if (lines.size() == kMaxBulkLines)
      fail(std::string(what) + ": the emulator lets " + std::to_string(kMaxBulkLines) +
               " threads of a block or cluster issue bulk copies",
           at);
    line = &lines.emplace_back(Line{.thread = fiber->thread, .copies = {}, .groups = {}});
  }
  line->copies.push_back({shared, global, bytes, adds, at, {}});
  if (monitor)
    monitor->bulk_copy(shared, global, bytes, adds, static_cast<unsigned>(line - lines.data()),
                       static_cast<uint32_t>(line->copies.size()), fiber->thread, at);
  if (config().async == Async::eager) write_until(*line, line->copies.size());
}

void commit_bulk(Location at) {
  if (Line* const line = line_of(require_fiber(at)->thread)) line->groups.push_back(line->copies.size());
}

void wait_bulk(int groups_in_flight, bool until_written, Location at) {
  Fiber* fiber = require_fiber(at);
  Line* const line = line_of(fiber->thread);
  const size_t keep = static_cast<size_t>(groups_in_flight);
  if (line == nullptr || line->groups.size() <= keep) return;
  const size_t last = line->groups[line->groups.size() - keep - 1];
  line->waited = last;
  if (until_written)
    write_until(*line, last);
  else
    read_until(*line, last);
  if (monitor)
    monitor->bulk_seen(static_cast<unsigned>(line - lines.data()), static_cast<uint32_t>(last), until_written,
                       fiber->thread);
}

void fence_async_global(Location at) {
  Fiber* fiber = require_fiber(at);
  if (monitor) monitor->fence_async_global(fiber->thread);
}

void reset_bulk_copies() { lines.clear(); }

// What was read is written before the kernel ends, waited for or not.
void finish_bulk_copies() {
  for (Line& line : lines) {
    if (line.waited < line.copies.size())
      throw Error("emulator: block " + text(machine.fibers[line.thread].block) +
                  " ended without bulk_wait_read() for " + text_of_thread(line.thread) + "'s bulk copy at " +
                  text(line.copies[line.waited].at) + ", kernel launched at " + text(machine.launch));
    write_until(line, line.copies.size());
  }
}

}  // namespace heed::emulator
