#include <algorithm>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/runtime/order.h>
#include <heed/kernels/simt/race/checker.h>

namespace heed::emulator {
namespace {

bool inside(const void* address, const void* start, size_t bytes) {
  return static_cast<size_t>(static_cast<const char*>(address) - static_cast<const char*>(start)) < bytes;
}

[[noreturn]] void report_error(const std::string& what) { fail(what, {}); }

}  // namespace

void Checker::launch_begin(const void* kernel, const void* arguments, size_t argument_bytes) {
  launch_ = stream_order().current();
  arguments_ = static_cast<const char*>(arguments);
  argument_bytes_ = argument_bytes;
  published_.clear();
  announced_ = {};
  shadow_.set_program(kernel);
}

void Checker::block_begin(unsigned threads) {
  ++block_;
  clocks_.start(threads);
  shadow_.clear_pieces();
}

std::string Checker::who(const Access& by) const {
  if (clocks_.is_group(by.moment))
    return "wgmma of threads " + text_of_threads(clocks_.group_of(by.moment) * 128, 128) + " (" +
           sites_.text(by.site) + ")";
  if (clocks_.is_bulk(by.moment)) return "bulk copy (" + sites_.text(by.site) + ")";
  if (clocks_.is_agent(by.moment)) return "tma_load (" + sites_.text(by.site) + ")";
  return text_of_thread(by.moment.thread) + " (" + sites_.text(by.site) + ")";
}

std::string Checker::where(Space space, const void* address) {
  if (space == Space::shared)
    return "shared memory at byte " + std::to_string(shared_offset(address)) +
           (machine.blocks == 1 ? "" : " of the cluster's block " + std::to_string(block_of_shared(address)));
  if (space == Space::variable) return "a __shared__ or __device__ variable";
  const unsigned char* p = static_cast<const unsigned char*>(address);
  const Region& region = *shadow_.region_near(p);
  return "global memory at byte " + std::to_string(p - region.start) + " of an allocation of " +
         std::to_string(region.bytes) + " bytes";
}

const char* Checker::verb(const Use& use) { return use.by.atomic ? "atomic" : use.write ? "write" : "read"; }

// Built-in variables, kernel arguments and the threads' own stacks are no one else's concern.
bool Checker::skipped(const void* address) const {
  return on_fiber_stack(address) || inside(address, arguments_, argument_bytes_) ||
         inside(address, &threadIdx, sizeof threadIdx) || inside(address, &blockIdx, sizeof blockIdx) ||
         inside(address, &blockDim, sizeof blockDim) || inside(address, &gridDim, sizeof gridDim);
}

void Checker::count(Region& region, const Use& use) {
  if (!use.write || use.by.atomic) region.traffic.read += use.bytes;
  if (use.write) region.traffic.written += use.bytes;
}

// Finds what is used and calls `each` for its cells; fails if that is not memory of the device.
template <class F>
void Checker::check(const Use& use, F each) {
  if (skipped(use.address)) return;
  const unsigned char* p = static_cast<const unsigned char*>(use.address);
  if (in_shared_memory(p, 1)) {
    const size_t offset = cluster_offset(p);
    bool taken = in_shared_memory(p, use.bytes);
    for (size_t i = 0; taken && i < use.bytes; ++i) taken = shadow_.is_piece(offset + i);
    if (!taken)
      report_error(std::string("out-of-bounds shared memory ") + verb(use) + " of " +
                   std::to_string(use.bytes) + " bytes by " + by_whom(use));
    shadow_.shared().visit(offset, use.bytes, use.write,
                           [&](Cell& cell, size_t at) { each(cell, Space::shared, p + (at - offset)); });
  } else if (shadow_.is_variable(p)) {
    for (size_t i = 0; i < use.bytes; ++i) each(shadow_.variable(p + i), Space::variable, p + i);
  } else if (Region* region = shadow_.region_near(p)) {
    if (p < region->start || p + use.bytes > region->start + region->bytes) {
      if (sites_.in_library(use.by.site)) return;
      report_error(std::string("out-of-bounds global memory ") + verb(use) + " of " +
                   std::to_string(use.bytes) + " bytes by " + by_whom(use) + ": " +
                   (p < region->start ? std::to_string(region->start - p) + " bytes before the start"
                                      : std::to_string(p - region->start) + " bytes from the start") +
                   " of an allocation of " + std::to_string(region->bytes) + " bytes");
    }
    if (!may_use_memory())
      report_error(std::string(verb(use)) + " of global memory by " + by_whom(use) +
                   " before Dependent::wait(), while kernels in front may use it");
    if (!use.counted) count(*region, use);
    const size_t first = static_cast<size_t>(p - region->start);
    region->cells.visit(first, use.bytes, use.write,
                        [&](Cell& cell, size_t at) { each(cell, Space::global, p + (at - first)); });
  } else if (!shadow_.is_constant(p) && !sites_.in_library(use.by.site)) {
    report_error(
        std::string(verb(use)) + " of host memory by " + who(use.by) +
        ": the address is in no allocation of the device (a host pointer, or memory that was freed)");
  }
}

// Compares with what other operations did that may still be under way, and notes this one. `use` is a
// thread's; null: that of a copy, fill or product.
void Checker::check_streams(Cell& cell, const void* address, bool write, const Use* use) {
  const StreamOrder& order = stream_order();
  const uint32_t now = order.current();
  if (write ? cell.last_write == now && cell.last_reads[0] == 0 : cell.last_reads[0] == now) return;
  const auto compare = [&](uint32_t other, const char* did) {
    if (order.before_current(other)) return;
    report_error("race between streams on " + where(Space::global, address) + ": " +
                 (write ? "write" : "read") + " by " + (use ? who(use->by) : "a copy, fill or product") +
                 ", unordered with the " + did + " by " + order.text(other) +
                 " in another stream; let one wait for the other's event, or the host for one of them");
  };
  const bool both_atomic = use != nullptr && use->by.atomic && cell.writer.atomic;
  if (!both_atomic) compare(cell.last_write, "write");
  if (!write) {
    if (!order.before_current(cell.last_reads[0])) cell.last_reads[1] = cell.last_reads[0];
    cell.last_reads[0] = now;
    return;
  }
  for (uint32_t& read : cell.last_reads) {
    compare(read, "read");
    read = 0;
  }
  cell.last_write = now;
}

// Whether what another block did is known to one that does something now.
bool Checker::published(const Cell& cell, const Access& earlier, const Access& now) const {
  const auto block = published_.find(cell.block);
  return block != published_.end() && std::ranges::any_of(block->second, [&](const auto& at) {
           return at.second.covers(earlier.moment) && clocks_.after_atomic(at.first, now.moment.thread);
         });
}

// An agent knows of what was ordered by an atomic of its thread after a fence of that.
void Checker::require_shown(const Cell& cell, Space space, const void* address, const Use& use) {
  if (use.agent != nullptr && cell.has_writer && !clocks_.shown_to_agents(use.by.moment.thread))
    report_error(std::string(verb(use)) + " of " + where(space, address) + " by " + by_whom(use) +
                 " after the write by " + who(cell.writer) +
                 ", without a fence_async_global() since the atomic that ordered the two");
}

// Makes the cell speak of the running block, after comparing with what another block of the same launch did.
// False if the other block's write stays on record, so that a third block is compared with it too.
bool Checker::enter_block(Cell& cell, Space space, const void* address, const Use& use) {
  if (cell.launch == launch_ && cell.block == block_) return true;
  const bool other_block = space == Space::global && cell.launch == launch_;
  if (other_block) {
    if (cell.has_writer && !(cell.writer.atomic && use.by.atomic) && !published(cell, cell.writer, use.by))
      report_error("data race between blocks on " + where(space, address) + ": " + verb(use) + " by " +
                   who(use.by) + ", unordered with the write by another block's " + who(cell.writer));
    if (use.write && cell.readers != 0 && !published(cell, cell.reader[0], use.by))
      report_error("data race between blocks on " + where(space, address) + ": " + verb(use) + " by " +
                   who(use.by) + ", unordered with the read by another block's " + who(cell.reader[0]));
    require_shown(cell, space, address, use);
    if (!use.write && cell.has_writer) return false;
  }
  if (space == Space::shared) cell.written = false;  // a new block's shared memory holds garbage
  cell.launch = launch_;
  cell.block = block_;
  cell.has_writer = cell.copy_in_flight = false;
  cell.readers = 0;
  return true;
}

void Checker::record_read(Cell& cell, const Use& use) {
  const Access reader = use.recorded();
  int kept = 0;  // readers that the new one does not stand for
  for (int i = 0; i < cell.readers; ++i)
    if (cell.reader[i].moment.thread != reader.moment.thread && !before(cell.reader[i], use.by))
      cell.reader[kept++] = cell.reader[i];
  if (kept == Cell::kReaders) --kept;
  for (int i = kept; i > 0; --i) cell.reader[i] = cell.reader[i - 1];
  cell.reader[0] = reader;
  cell.readers = static_cast<uint8_t>(kept + 1);
}

// Agents see what threads wrote only after a fence of the writer.
void Checker::check_proxy(const Cell& cell, Space space, const void* address, const Use& use) {
  if (use.agent == nullptr || !cell.has_writer) return;
  if (space == Space::global && cell.writer.moment.thread != use.agent->thread)
    require_shown(cell, space, address, use);
  if (!clocks_.visible_to_agents(cell.writer.moment, use.by.moment.thread))
    report_error(std::string(verb(use)) + " of " + where(space, address) + " by " + by_whom(use) +
                 " without a fence_async_shared() of thread " + std::to_string(cell.writer.moment.thread) +
                 " between its write (" + sites_.text(cell.writer.site) +
                 ") and the barrier that orders the two");
}

void Checker::touch_cell(Cell& cell, Space space, const void* address, const Use& use) {
  if (space == Space::global) check_streams(cell, address, use.write, &use);
  if (!enter_block(cell, space, address, use)) return;
  if (cell.copy_in_flight)
    report_error(std::string(verb(use)) + " of " + where(space, address) + " by " + by_whom(use) +
                 " while an asynchronous copy to it is in flight, issued by " + who(cell.writer));
  if (cell.has_writer && !(use.by.atomic && cell.writer.atomic) && !before(cell.writer, use.by))
    report_error("data race on " + where(space, address) + ": " + verb(use) + " by " + by_whom(use) +
                 ", unordered with the write by " + who(cell.writer));
  if ((!use.write || use.by.atomic) && !cell.written && space != Space::variable)
    report_error("read of uninitialised " + where(space, address) + " by " + by_whom(use));
  check_proxy(cell, space, address, use);
  if (!use.write) return record_read(cell, use);
  for (int i = 0; i < cell.readers; ++i)
    if (!before(cell.reader[i], use.by))
      report_error("data race on " + where(space, address) + ": " + verb(use) + " by " + by_whom(use) +
                   ", unordered with the read by " + who(cell.reader[i]));
  cell.writer = use.recorded();
  cell.has_writer = cell.written = true;
  cell.readers = 0;
}

void Checker::touch(const Use& use) {
  check(use, [&](Cell& cell, Space space, const void* address) { touch_cell(cell, space, address, use); });
}

void Checker::access(const void* address, size_t bytes, bool write, unsigned thread, Location at) {
  touch({address, bytes, write, access_by(thread, sites_.of(at), false)});
  announced_ = {address, bytes, bytes, write, thread};
}

void Checker::atomic(const void* address, size_t bytes, unsigned thread, Location at) {
  touch({address, bytes, true, access_by(thread, sites_.of(at), true)});
  if (in_shared_memory(address, 1)) return;
  Snapshot published = clocks_.atomic(address, thread);
  if (!published.clocks.empty()) published_[block_][address] = std::move(published);
}

void Checker::instrumented(const void* address, size_t bytes, bool write, const void* return_address) {
  if (on_fiber_stack(address)) return;
  const unsigned thread = machine.current->thread;
  const bool counted = announced_.left > 0 && announced_.thread == thread && announced_.write == write &&
                       inside(address, announced_.address, announced_.bytes);
  if (counted) announced_.left -= std::min(announced_.left, bytes);
  touch({address, bytes, write, access_by(thread, sites_.of(return_address), false), nullptr, counted});
}

void Checker::copy_begin(const void* to, size_t bytes, unsigned thread, Location at) {
  const Use use{to, bytes, true, access_by(thread, sites_.of(at), false)};
  check(use, [&](Cell& cell, Space space, const void* address) {
    touch_cell(cell, space, address, use);
    cell.copy_in_flight = true;
  });
}

void Checker::copy_end(const void* to, size_t bytes, unsigned thread, Location at) {
  const Use use{to, bytes, true, access_by(thread, sites_.of(at), false)};
  check(use, [&](Cell& cell, Space space, const void* address) {
    cell.copy_in_flight = false;
    touch_cell(cell, space, address, use);
  });
}

void Checker::phase_seen(const void* mbarrier, unsigned number, uint32_t phases, unsigned thread) {
  clocks_.phase_seen(mbarrier, thread);
  clocks_.learn(clocks_.of_copies(number, phases), thread);
}

void Checker::box_copy(const void* to, size_t bytes, unsigned mbarrier, uint32_t phase, unsigned thread,
                       Location at) {
  const Moment moment = clocks_.of_copies(mbarrier, phase + 1);  // over when that many phases are
  touch({to, bytes, true, access_by(thread, sites_.of(at), false), &moment});
}

// All threads of the warpgroup issued it; each warp must be allowed to read.
void Checker::product_read(const void* address, size_t bytes, unsigned group, uint32_t product, Location at) {
  const Moment moment = clocks_.of_group(group, product);
  for (unsigned thread = group * 128; thread < (group + 1) * 128; thread += 32)
    touch({address, bytes, false, access_by(thread, sites_.of(at), false), &moment});
}

void Checker::bulk_copy(const void* from, const void* to, size_t bytes, bool adds, unsigned line,
                        uint32_t copy, unsigned thread, Location at) {
  const Moment reads = clocks_.of_bulk_reads(line, copy), writes = clocks_.of_bulk_writes(line, copy);
  touch({from, bytes, false, access_by(thread, sites_.of(at), false), &reads});
  touch({to, bytes, true, access_by(thread, sites_.of(at), adds), &writes});
}

void Checker::region_added(void* address, size_t bytes, bool device_only) {
  Region& region = shadow_.add_region(static_cast<unsigned char*>(address), bytes, device_only);
  if (!device_only)  // the host may write it unseen
    region.cells.visit(0, bytes, true, [](Cell& cell, size_t) { cell.written = true; });
}

void Checker::range_poisoned(const void* address, size_t bytes) {
  const unsigned char* p = static_cast<const unsigned char*>(address);
  if (Region* region = shadow_.region_near(p))
    region->cells.visit(static_cast<size_t>(p - region->start), bytes, true,
                        [](Cell& cell, size_t) { cell.written = false; });
}

Traffic Checker::traffic(const void* address) {
  const unsigned char* p = static_cast<const unsigned char*>(address);
  const Region* region = shadow_.region_near(p);
  if (region == nullptr || !inside(p, region->start, region->bytes))
    report_error("traffic: nothing is allocated there");
  return region->traffic;
}

void Checker::range_used(const void* address, size_t bytes, bool write) {
  const unsigned char* p = static_cast<const unsigned char*>(address);
  Region* region = shadow_.region_near(p);
  if (region == nullptr || p < region->start || p + bytes > region->start + region->bytes) return;
  region->cells.visit(static_cast<size_t>(p - region->start), bytes, write, [&](Cell& cell, size_t at) {
    check_streams(cell, region->start + at, write, nullptr);
    if (!write) return;
    const uint32_t now = cell.last_write;
    cell = {};  // of launches that are over nothing more is asked
    cell.last_write = now;
    cell.written = true;
  });
}

}  // namespace heed::emulator
