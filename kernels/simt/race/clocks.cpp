#include <algorithm>

#include <heed/kernels/simt/race/clocks.h>

namespace heed::emulator {

void Clocks::start(unsigned threads) {
  threads_ = threads;
  ++epoch_;
  passed_on_.clear();
  seen_.assign(static_cast<size_t>(threads) * threads, 0);
  for (unsigned t = 0; t < threads; ++t) seen(t, t) = 1;
}

void Clocks::warp_barrier(unsigned warp, uint32_t lanes) {
  std::vector<uint32_t> all(threads_, 0);
  const auto for_each = [&](auto f) {
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1)
      f(warp * 32 + static_cast<unsigned>(__builtin_ctz(rest)));
  };
  for_each([&](unsigned thread) {
    for (unsigned other = 0; other < threads_; ++other)
      all[other] = std::max(all[other], seen(thread, other));
  });
  for_each([&](unsigned thread) {
    std::copy(all.begin(), all.end(), &seen(thread, 0));
    ++seen(thread, thread);
  });
}

void Clocks::arrive(const void* barrier, unsigned thread) {
  std::vector<uint32_t>& passed = passed_on_[barrier];
  passed.resize(threads_);
  for (unsigned other = 0; other < threads_; ++other)
    passed[other] = std::max(passed[other], seen(thread, other));
  ++seen(thread, thread);
}

void Clocks::leave(const void* barrier, unsigned thread) {
  const auto passed = passed_on_.find(barrier);
  if (passed == passed_on_.end()) return;
  for (unsigned other = 0; other < threads_; ++other)
    if (other != thread) seen(thread, other) = std::max(seen(thread, other), passed->second[other]);
}

}  // namespace heed::emulator
