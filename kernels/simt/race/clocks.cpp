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
  published_ = {};
  atomics_.assign(threads, {});
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
  const uint32_t* const row = &seen(thread, 0);
  fences_.push_back({now(thread), {epoch_, Row(row, row + columns())}});
  ++seen(thread, thread);
}

void Clocks::atomic(unsigned thread) {
  if (atomics_[thread].epoch == 0) atomics_[thread] = now(thread);
  std::erase_if(fences_, [&](const Fence& fence) {
    if (!before(fence.moment, thread)) return false;
    published_.epoch = std::max(published_.epoch, fence.covered.epoch);
    published_.clocks.resize(columns());
    take_later(published_.clocks.data(), fence.covered.clocks.data(), columns());
    return true;
  });
}

bool Clocks::after_atomic(unsigned thread) const {
  return std::ranges::any_of(
      atomics_, [&](const Moment& moment) { return moment.epoch != 0 && before(moment, thread); });
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
