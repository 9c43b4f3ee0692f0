#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <string_view>
#include <vector>

#include <heed/core/base/allocator.h>
#include <heed/core/base/check.h>
#include <heed/core/base/pause.h>

namespace heed {
namespace {

constexpr size_t kAlignment = 128;
constexpr int kStepsPerDoubling = 4;  // a block is at most a quarter larger than what was asked

// Size classes: multiples of 128 up to 512, then four steps per doubling.
struct SizeClass {
  size_t bytes;
  size_t index;
};

SizeClass size_class(size_t bytes) {
  if (bytes <= 512) {
    const size_t blocks = std::max<size_t>(1, (bytes + kAlignment - 1) / kAlignment);
    return {blocks * kAlignment, blocks - 1};
  }
  const int doubling = std::bit_width(bytes - 1) - 1;  // 2^doubling < bytes <= 2^(doubling + 1)
  const size_t base = size_t{1} << doubling;
  const size_t step = base / kStepsPerDoubling;
  const size_t steps = (bytes - base + step - 1) / step;  // 1 .. 4
  return {base + steps * step, 4 + static_cast<size_t>(doubling - 9) * kStepsPerDoubling + (steps - 1)};
}

constexpr size_t kClasses = 4 + 55 * kStepsPerDoubling;
constexpr size_t kLargestRequest = size_t{1} << 62;

AllocatorKind kind_from_environment() {
  const char* value = std::getenv("HEED_ALLOCATOR");
  if (value == nullptr || *value == '\0' || std::string_view(value) == "caching")
    return AllocatorKind::caching;
  HEED_CHECK(std::string_view(value) == "plain", ConfigError, "HEED_ALLOCATOR is '", value,
             "'; expected caching or plain");
  return AllocatorKind::plain;
}

MemorySource heap() {
  return {"cpu", [](void*, size_t bytes) { return std::aligned_alloc(kAlignment, bytes); },
          [](void*, void* pointer, size_t) { std::free(pointer); },
          [](void*, void* pointer, size_t bytes) { std::memset(pointer, 0xff, bytes); }, nullptr};
}

// The locks of all allocators. A fork takes them, or the child might find one held by a thread that it does
// not have.
class ForkLocks {
 public:
  static ForkLocks& all() {
    static ForkLocks* const instance = [] {
      pthread_atfork([] { all().lock(); }, [] { all().unlock(); }, [] { all().unlock(); });
      return new ForkLocks;
    }();
    return *instance;
  }
  void add(std::mutex& lock) {
    const std::lock_guard guard(mutex_);
    locks_.push_back(&lock);
  }
  void remove(std::mutex& lock) {
    const std::lock_guard guard(mutex_);
    locks_.erase(std::find(locks_.begin(), locks_.end(), &lock));
  }

 private:
  void lock() {
    mutex_.lock();
    for (std::mutex* lock : locks_) lock->lock();
  }
  void unlock() {
    for (std::mutex* lock : locks_) lock->unlock();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<std::mutex*> locks_;
};

// Whoever holds an allocator's lock needs it for less time than it takes to sleep and be woken.
std::unique_lock<std::mutex> lock_soon(std::mutex& mutex) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (mutex.try_lock()) return {mutex, std::adopt_lock};
    pause();
  }
  return std::unique_lock(mutex);
}

}  // namespace

AllocatorKind default_allocator_kind() {
  static const AllocatorKind kind = kind_from_environment();
  return kind;
}

struct Allocator::State {
  // A cached block's first bytes cannot link the list: device memory is not readable from here.
  using FreeList = std::vector<void*>;

  MemorySource source;
  AllocatorKind kind;
  bool poisons;
  mutable std::mutex mutex;
  FreeList free_lists[kClasses];
  MemoryStats stats;
  int64_t limit = 0;

  State(const MemorySource& memory, AllocatorKind how)
      : source(memory),
        kind(how),
        poisons((how == AllocatorKind::arena ? default_allocator_kind() : how) == AllocatorKind::plain) {
    ForkLocks::all().add(mutex);
  }
  ~State() { ForkLocks::all().remove(mutex); }

  bool keeps() const { return kind != AllocatorKind::plain; }

  size_t block_bytes(size_t bytes) const {
    return keeps() ? size_class(bytes).bytes
                   : (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  }

  void release_all() noexcept {
    for (size_t index = 0; index < kClasses; ++index) {
      const size_t bytes = index < 4
                               ? (index + 1) * kAlignment
                               : ((size_t{1} << (9 + (index - 4) / kStepsPerDoubling)) / kStepsPerDoubling) *
                                     (kStepsPerDoubling + 1 + (index - 4) % kStepsPerDoubling);
      for (void* pointer : free_lists[index]) source.release(source.context, pointer, bytes);
      free_lists[index].clear();
    }
    stats.cached = 0;
  }
};

Allocator::Allocator(const MemorySource& source, AllocatorKind kind) : state_(new State(source, kind)) {}

Allocator::~Allocator() { state_->release_all(); }

void* Allocator::allocate(size_t bytes) {
  State& s = *state_;
  const auto out_of_memory = [&] {
    return OutOfMemory(concat(s.source.name, ": cannot allocate ", bytes, " bytes; ", s.stats.in_use,
                              " bytes are in use, ", s.stats.cached, " cached",
                              s.limit > 0 ? concat(", limit ", s.limit) : std::string()));
  };
  const std::unique_lock lock = lock_soon(s.mutex);
  if (bytes > kLargestRequest) throw out_of_memory();
  const size_t block = s.block_bytes(bytes);
  if (s.limit > 0 && s.stats.in_use + static_cast<int64_t>(block) > s.limit) throw out_of_memory();

  void* pointer = nullptr;
  if (s.keeps()) {
    auto& list = s.free_lists[size_class(bytes).index];
    if (!list.empty()) {
      pointer = list.back();
      list.pop_back();
      s.stats.cached -= static_cast<int64_t>(block);
    }
  }
  if (pointer == nullptr) {
    pointer = s.source.acquire(s.source.context, block);
    if (pointer == nullptr && s.kind == AllocatorKind::caching) {
      s.release_all();
      pointer = s.source.acquire(s.source.context, block);
    }
    if (pointer == nullptr) throw out_of_memory();
    ++s.stats.system_calls;
  }
  if (s.poisons) s.source.poison(s.source.context, pointer, block);
  ++s.stats.requests;
  s.stats.in_use += static_cast<int64_t>(block);
  s.stats.peak = std::max(s.stats.peak, s.stats.in_use);
  return pointer;
}

void Allocator::deallocate(void* pointer, size_t bytes) noexcept {
  if (pointer == nullptr) return;
  State& s = *state_;
  const std::unique_lock lock = lock_soon(s.mutex);
  const size_t block = s.block_bytes(bytes);
  s.stats.in_use -= static_cast<int64_t>(block);
  if (s.keeps()) {
    auto& list = s.free_lists[size_class(bytes).index];
    try {
      list.push_back(pointer);
      s.stats.cached += static_cast<int64_t>(block);
      return;
    } catch (...) {  // no room to remember it: give it back instead
    }
  }
  s.source.release(s.source.context, pointer, block);
}

MemoryStats Allocator::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->stats;
}

void Allocator::reset_peak() {
  std::lock_guard lock(state_->mutex);
  state_->stats.peak = state_->stats.in_use;
}

void Allocator::release_cached() noexcept {
  std::lock_guard lock(state_->mutex);
  if (state_->kind != AllocatorKind::arena) state_->release_all();
}

void Allocator::set_limit(int64_t bytes) {
  HEED_CHECK(bytes >= 0, ConfigError, "set_limit: negative number of bytes: ", bytes);
  std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
}

AllocatorKind Allocator::kind() const { return state_->kind; }

Allocator& cpu_allocator() {
  static Allocator* const allocator = new Allocator(heap());
  return *allocator;
}

}  // namespace heed
