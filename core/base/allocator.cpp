#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <pthread.h>
#include <string_view>
#include <sys/mman.h>
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

size_t class_bytes(size_t index) {
  if (index < 4) return (index + 1) * kAlignment;
  return ((size_t{1} << (9 + (index - 4) / kStepsPerDoubling)) / kStepsPerDoubling) *
         (kStepsPerDoubling + 1 + (index - 4) % kStepsPerDoubling);
}

constexpr size_t kClasses = 4 + 55 * kStepsPerDoubling;
constexpr size_t kThreadBytes = size_t{1} << 16;  // the largest block that a thread keeps for itself
constexpr size_t kThreadClasses = 4 + 7 * kStepsPerDoubling;
constexpr int64_t kThreadLimit = int64_t{1} << 20;  // bytes that a thread keeps at most
constexpr size_t kLargestRequest = size_t{1} << 62;

AllocatorKind kind_from_environment() {
  const char* value = std::getenv("HEED_ALLOCATOR");
  if (value == nullptr || *value == '\0' || std::string_view(value) == "caching")
    return AllocatorKind::caching;
  HEED_CHECK(std::string_view(value) == "plain", ConfigError, "HEED_ALLOCATOR is '", value,
             "'; expected caching or plain");
  return AllocatorKind::plain;
}

// Asks for large pages under blocks that hold one: with pages of 4 KiB a pass over such a block waits for
// their addresses and for the processor's prefetching, which ends with each.
void* acquire_from_heap(void*, size_t bytes) {
  constexpr size_t kLargePage = size_t{1} << 21;
  void* pointer = nullptr;
  if (posix_memalign(&pointer, bytes < kLargePage ? kAlignment : kLargePage, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  // Whole pages only, so that no more memory becomes resident. A system without them refuses.
  if (bytes >= kLargePage) madvise(pointer, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
#endif
  return pointer;
}

MemorySource heap() {
  return {"cpu", acquire_from_heap, [](void*, void* pointer, size_t) { std::free(pointer); },
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

// Blocks of the CPU that the thread which freed them keeps for its next requests: threads that work side by
// side do not wait for each other's locks. Others read the counts, hence the atomics; only the thread itself
// writes.
struct ThreadBlocks {
  struct Free {
    Free* next;
  };
  Free* lists[kThreadClasses] = {};
  std::atomic<int64_t> kept{0};      // bytes
  std::atomic<int64_t> requests{0};  // that were met from here
  ThreadBlocks* next = nullptr;      // of another thread

  static void add(std::atomic<int64_t>& count, int64_t by) {
    count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  void* take(SizeClass size) {
    Free* const block = lists[size.index];
    if (block == nullptr) return nullptr;
    lists[size.index] = block->next;
    add(kept, -static_cast<int64_t>(size.bytes));
    add(requests, 1);
    return block;
  }

  bool keep(void* pointer, SizeClass size) {
    if (kept.load(std::memory_order_relaxed) + static_cast<int64_t>(size.bytes) > kThreadLimit) return false;
    lists[size.index] = new (pointer) Free{lists[size.index]};
    add(kept, static_cast<int64_t>(size.bytes));
    return true;
  }
};

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
  MemoryStats stats;  // blocks that threads keep count as in use
  int64_t limit = 0;
  bool keeps_for_threads = false;         // the CPU's own allocator, without a limit:
  std::atomic<bool> threads_keep{false};  // threads keep blocks for themselves
  ThreadBlocks* threads = nullptr;

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

  // What threads keep is cached, not in use.
  MemoryStats counted() {
    MemoryStats all = stats;
    for (const ThreadBlocks* thread = threads; thread; thread = thread->next) {
      const int64_t kept = thread->kept.load(std::memory_order_relaxed);
      all.in_use -= kept;
      all.cached += kept;
      all.requests += thread->requests.load(std::memory_order_relaxed);
    }
    all.peak = stats.peak = std::max(stats.peak, all.in_use);
    return all;
  }

  void take_back(void* pointer, SizeClass size) noexcept {
    stats.in_use -= static_cast<int64_t>(size.bytes);
    if (keeps()) {
      try {
        free_lists[size.index].push_back(pointer);
        stats.cached += static_cast<int64_t>(size.bytes);
        return;
      } catch (...) {  // no room to remember it: give it back instead
      }
    }
    source.release(source.context, pointer, size.bytes);
  }

  void empty_thread(ThreadBlocks& thread) noexcept {
    for (size_t index = 0; index < kThreadClasses; ++index)
      while (ThreadBlocks::Free* const block = thread.lists[index]) {
        thread.lists[index] = block->next;
        take_back(block, {class_bytes(index), index});
      }
    thread.kept.store(0, std::memory_order_relaxed);
  }

  void release_all() noexcept {
    for (size_t index = 0; index < kClasses; ++index) {
      for (void* pointer : free_lists[index]) source.release(source.context, pointer, class_bytes(index));
      free_lists[index].clear();
    }
    stats.cached = 0;
  }
};

Allocator::Allocator(const MemorySource& source, AllocatorKind kind) : state_(new State(source, kind)) {}

Allocator::~Allocator() { state_->release_all(); }

namespace {

// The calling thread's blocks: null before the first request, and again once the thread is ending.
struct ThreadSlot {
  ThreadBlocks* blocks = nullptr;
  bool ended = false;
};
constinit thread_local ThreadSlot thread_slot;

}  // namespace

/// Gives a thread its blocks, and takes them back when it ends. They are not in the thread's own memory:
/// after a fork, which it does not survive, that memory is used for others.
class Allocator::ThreadUse {
 public:
  explicit ThreadUse(State& state) : state_(state), blocks_(new (std::nothrow) ThreadBlocks) {
    if (blocks_ == nullptr) return;
    const std::lock_guard lock(state_.mutex);
    blocks_->next = state_.threads;
    thread_slot.blocks = state_.threads = blocks_;
  }
  ~ThreadUse() {
    thread_slot = {nullptr, true};
    if (blocks_ == nullptr) return;
    const std::lock_guard lock(state_.mutex);
    state_.empty_thread(*blocks_);
    state_.stats.requests += blocks_->requests.load(std::memory_order_relaxed);
    ThreadBlocks** link = &state_.threads;
    while (*link != blocks_) link = &(*link)->next;
    *link = blocks_->next;
    delete blocks_;
  }
  ThreadUse(const ThreadUse&) = delete;
  ThreadUse& operator=(const ThreadUse&) = delete;

  static ThreadBlocks* blocks(State& state) {
    if (thread_slot.blocks == nullptr && !thread_slot.ended) thread_local ThreadUse use(state);
    return thread_slot.blocks;
  }

 private:
  State& state_;
  ThreadBlocks* blocks_;
};

void* Allocator::allocate(size_t bytes) {
  State& s = *state_;
  if (bytes <= kThreadBytes && s.threads_keep.load(std::memory_order_relaxed)) {
    ThreadBlocks* const mine = ThreadUse::blocks(s);
    if (void* const block = mine ? mine->take(size_class(bytes)) : nullptr) return block;
  }
  const auto out_of_memory = [&] {
    const MemoryStats now = s.counted();
    return OutOfMemory(concat(s.source.name, ": cannot allocate ", bytes, " bytes; ", now.in_use,
                              " bytes are in use, ", now.cached, " cached",
                              s.limit > 0 ? concat(", limit ", s.limit) : std::string()));
  };
  const std::unique_lock lock = lock_soon(s.mutex);
  if (bytes > kLargestRequest) throw out_of_memory();
  const size_t block = s.block_bytes(bytes);
  if (s.limit > 0 && s.counted().in_use + static_cast<int64_t>(block) > s.limit) throw out_of_memory();

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
      if (s.keeps_for_threads && thread_slot.blocks) s.empty_thread(*thread_slot.blocks);
      s.release_all();
      pointer = s.source.acquire(s.source.context, block);
    }
    if (pointer == nullptr) throw out_of_memory();
    ++s.stats.system_calls;
  }
  if (s.poisons) s.source.poison(s.source.context, pointer, block);
  ++s.stats.requests;
  s.stats.in_use += static_cast<int64_t>(block);
  if (s.stats.in_use > s.stats.peak) s.counted();  // what threads keep may be part of it
  return pointer;
}

void Allocator::deallocate(void* pointer, size_t bytes) noexcept {
  if (pointer == nullptr) return;
  State& s = *state_;
  if (bytes <= kThreadBytes && s.threads_keep.load(std::memory_order_relaxed)) {
    ThreadBlocks* const mine = ThreadUse::blocks(s);
    if (mine && mine->keep(pointer, size_class(bytes))) return;
  }
  const std::unique_lock lock = lock_soon(s.mutex);
  s.take_back(pointer, {s.block_bytes(bytes), s.keeps() ? size_class(bytes).index : 0});
}

MemoryStats Allocator::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->counted();
}

void Allocator::reset_peak() {
  std::lock_guard lock(state_->mutex);
  state_->stats.peak = 0;
  state_->counted();
}

void Allocator::release_cached() noexcept {
  std::lock_guard lock(state_->mutex);
  if (state_->keeps_for_threads && thread_slot.blocks) state_->empty_thread(*thread_slot.blocks);
  if (state_->kind != AllocatorKind::arena) state_->release_all();
}

void Allocator::set_limit(int64_t bytes) {
  HEED_CHECK(bytes >= 0, ConfigError, "set_limit: negative number of bytes: ", bytes);
  std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
  state_->threads_keep = state_->keeps_for_threads && bytes == 0;  // each request is counted against it
}

void Allocator::let_threads_keep() {
  state_->keeps_for_threads = state_->kind == AllocatorKind::caching;
  state_->threads_keep = state_->keeps_for_threads;
}

AllocatorKind Allocator::kind() const { return state_->kind; }

Allocator& cpu_allocator() {
  static Allocator* const allocator = [] {
    auto* const made = new Allocator(heap());
    made->let_threads_keep();
    return made;
  }();
  return *allocator;
}

}  // namespace heed
