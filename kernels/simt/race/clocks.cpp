#include <algorithm>

#include <heed/kernels/simt/race/clocks.h>

namespace heed::emulator {
namespace {

// Each of `into` becomes the later of it and its like in `from`.
void take_later(uint32_t* __restrict into, const uint32_t* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) into[i] = into[i] < from[i] ? from[i] : into[i];
}

}  // namespace

void Clocks::start(unsigned threads) {
  threads_ = threads;
  ++epoch_;
  passed_on_.clear();
  released_.clear();
  fences_.clear();
  atomics_.clear();
  published_.clear();
  shown_to_.clear();
  awaits_async_fence_.assign(threads, false);
  async_fences_.assign(threads, {});
  seen_.assign(static_cast<size_t>(threads) * columns(), 0);
  for (unsigned t = 0; t < threads; ++t) seen(t, t) = 1;
}

void Clocks::block_barrier() {
  ++epoch_;
  for (unsigned agent = threads_; agent < columns(); ++agent) {
    uint32_t known = 0;
    for (unsigned thread = 0; thread < threads_; ++thread) known = std::max(known, seen(thread, agent));
    for (unsigned thread = 0; known != 0 && thread < threads_; ++thread) seen(thread, agent) = known;
  }
}

void Clocks::warp_barrier(unsigned warp, uint32_t lanes) {
  Row all(columns(), 0);
  const auto for_each = [&](auto f) {
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1)
      f(warp * 32 + static_cast<unsigned>(__builtin_ctz(rest)));
  };
  for_each([&](unsigned thread) { take_later(all.data(), &seen(thread, 0), all.size()); });
  for_each([&](unsigned thread) {
    std::copy(all.begin(), all.end(), &seen(thread, 0));
    ++seen(thread, thread);
  });
}

void Clocks::arrive(const void* barrier, unsigned thread) {
  Row& passed = passed_on_[barrier];
  passed.resize(columns());
  take_later(passed.data(), &seen(thread, 0), passed.size());
  ++seen(thread, thread);
}

void Clocks::merge(unsigned thread, const Row& row) {
  const uint32_t own = seen(thread, thread);
  take_later(&seen(thread, 0), row.data(), row.size());
  seen(thread, thread) = own;
}

void Clocks::leave(const void* barrier, unsigned thread) {
  const auto passed = passed_on_.find(barrier);
  if (passed != passed_on_.end()) merge(thread, passed->second);
}

void Clocks::phase_seen(const void* mbarrier, unsigned thread) {
  const auto released = released_.find(mbarrier);
  if (released != released_.end()) merge(thread, released->second);
}

void Clocks::fence(unsigned thread) {
  if (const auto shown = shown_to_.find(thread); shown != shown_to_.end()) {
    merge(thread, shown->second);
    shown_to_.erase(shown);
  }
  const uint32_t* const row = &seen(thread, 0);
  fences_.push_back({now(thread), {epoch_, Row(row, row + columns())}});
  ++seen(thread, thread);
}

Snapshot Clocks::atomic(const void* address, unsigned thread) {
  std::vector<Moment>& here = atomics_[address];
  if (std::ranges::none_of(here, [&](const Moment& moment) { return moment.thread == thread; }))
    here.push_back(now(thread));
  awaits_async_fence_[thread] = true;
  if (const auto earlier = published_.find(address); earlier != published_.end()) {
    Row& row = shown_to_[thread];
    row.resize(columns());
    take_later(row.data(), earlier->second.data(), columns());
  }
  Snapshot published;
  for (const Fence& fence : fences_) {
    if (!before(fence.moment, thread)) continue;
    published.epoch = std::max(published.epoch, fence.covered.epoch);
    published.clocks.resize(columns());
    take_later(published.clocks.data(), fence.covered.clocks.data(), columns());
  }
  if (!published.clocks.empty()) published_[address] = published.clocks;
  return published;
}

bool Clocks::after_atomic(const void* address, unsigned thread) const {
  const auto here = atomics_.find(address);
  return here != atomics_.end() &&
         std::ranges::any_of(here->second, [&](const Moment& moment) { return before(moment, thread); });
}

void Clocks::fence_async(unsigned thread) {
  async_fences_[thread].push_back(now(thread));
  ++seen(thread, thread);
}

bool Clocks::visible_to_agents(const Moment& written, unsigned reader) const {
  if (is_agent(written)) return true;
  const std::vector<Moment>& fences = async_fences_[written.thread];
  const auto fence =
      std::lower_bound(fences.begin(), fences.end(), written.clock,
                       [](const Moment& moment, uint32_t clock) { return moment.clock < clock; });
  return fence != fences.end() && before(*fence, reader);
}

}  // namespace heed::emulator
