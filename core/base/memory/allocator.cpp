#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <pthread.h>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/base/memory/allocator.h>
#include <heed/core/base/memory/block_heap.h>
#include <heed/core/base/memory/size_class.h>
#include <heed/core/base/memory/thread_cache.h>
#include <heed/core/base/threads/pause.h>

namespace heed {
namespace {

constexpr size_t kLargeBytes = size_t{1} << 19;   // blocks of so many bytes and more are cut from segments
constexpr size_t kSegmentUnit = size_t{1} << 21;  // divides the size of each
constexpr size_t kClasses = size_class(kLargeBytes).index;
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
void* acquire_from_heap(size_t bytes) {
  constexpr size_t kLargePage = size_t{1} << 21;
  void* pointer = nullptr;
  if (posix_memalign(&pointer, bytes < kLargePage ? kAlignment : kLargePage, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  // Whole pages only, so that no more memory becomes resident. A system without them refuses.
  if (bytes >= kLargePage) madvise(pointer, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
#endif
  return pointer;
}

void discard_pages(void* pointer, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(pointer), begin = round_up(address, page),
             end = (address + bytes) / page * page;
  if (begin < end) madvise(static_cast<std::byte*>(pointer) + (begin - address), end - begin, MADV_DONTNEED);
}

// A segment takes memory where it is used: in one large segment fewer gaps are left than in many.
MemorySource heap() {
  return {.name = "cpu",
          .acquire = acquire_from_heap,
          .release = [](void* pointer, size_t) { std::free(pointer); },
          .poison = [](void* pointer, size_t bytes) { std::memset(pointer, 0xff, bytes); },
          .segment_bytes = size_t{1} << 28,
          .discard = discard_pages};
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
  BlockHeap large;
  MemoryStats stats;  // blocks that threads keep count as in use
  int64_t limit = 0;
  bool keeps_for_threads = false;         // the CPU's own allocator, without a limit:
  std::atomic<bool> threads_keep{false};  // threads keep blocks for themselves
  ThreadCache* threads = nullptr;

  State(const MemorySource& memory, AllocatorKind how)
      : source(memory),
        kind(how),
        poisons((how == AllocatorKind::arena ? default_allocator_kind() : how) == AllocatorKind::plain) {
    ForkLocks::all().add(mutex);
  }
  ~State() { ForkLocks::all().remove(mutex); }

  bool keeps() const { return kind != AllocatorKind::plain; }

  size_t block_bytes(size_t bytes) const {
    return keeps() && bytes < kLargeBytes ? size_class(bytes).bytes
                                          : round_up(std::max<size_t>(bytes, 1), kAlignment);
  }

  bool in_segments(size_t block) const { return keeps() && block >= kLargeBytes; }

  /// From what is cached; null if there is none.
  void* take_cached(size_t block) {
    void* pointer = nullptr;
    if (in_segments(block)) {
      pointer = large.take(block);
    } else if (keeps()) {
      FreeList& list = free_lists[size_class(block).index];
      if (list.empty()) return nullptr;
      pointer = list.back();
      list.pop_back();
    }
    if (pointer) stats.cached -= static_cast<int64_t>(block);
    return pointer;
  }

  /// From the source, a large block in a segment, or by itself if there is no memory for one.
  void* acquire(size_t block) {
    if (in_segments(block)) {
      const size_t whole = round_up(block, kSegmentUnit);
      if (add_segment(whole < source.segment_bytes / 2 ? source.segment_bytes : whole) || add_segment(block))
        return take_cached(block);
      return nullptr;
    }
    return source.acquire(block);
  }

  bool add_segment(size_t bytes) {
    void* const segment = source.acquire(bytes);
    if (segment == nullptr) return false;
    try {
      large.add(segment, bytes);
    } catch (...) {  // no room to remember it
      source.release(segment, bytes);
      return false;
    }
    stats.cached += static_cast<int64_t>(bytes);
    return true;
  }

  // What threads keep is cached, not in use.
  MemoryStats counted() {
    MemoryStats all = stats;
    for (const ThreadCache* thread = threads; thread; thread = thread->next) {
      const int64_t kept = thread->kept.load(std::memory_order_relaxed);
      all.in_use -= kept;
      all.cached += kept;
      all.requests += thread->requests.load(std::memory_order_relaxed);
    }
    all.peak = stats.peak = std::max(stats.peak, all.in_use);
    return all;
  }

  void take_back(void* pointer, size_t block) noexcept {
    stats.in_use -= static_cast<int64_t>(block);
    if (keeps()) {
      try {
        if (in_segments(block))
          large.give_back(pointer);
        else
          free_lists[size_class(block).index].push_back(pointer);
        stats.cached += static_cast<int64_t>(block);
        return;
      } catch (...) {  // no room to remember it: give it back instead
      }
    }
    source.release(pointer, block);
  }

  void empty_thread(ThreadCache& thread) noexcept {
    for (size_t index = 0; index < kThreadClasses; ++index)
      while (ThreadCache::Free* const block = thread.lists[index]) {
        thread.lists[index] = block->next;
        take_back(block, class_bytes(index));
      }
    thread.kept.store(0, std::memory_order_relaxed);
  }

  void release_all() noexcept {
    const auto release = [this](void* pointer, size_t bytes) {
      source.release(pointer, bytes);
      stats.cached -= static_cast<int64_t>(bytes);
    };
    for (size_t index = 0; index < kClasses; ++index) {
      for (void* pointer : free_lists[index]) release(pointer, class_bytes(index));
      free_lists[index].clear();
    }
    large.release_unused(release, [this](void* pointer, size_t bytes) {
      if (source.discard) source.discard(pointer, bytes);
    });
  }
};

Allocator::Allocator(const MemorySource& source, AllocatorKind kind) : state_(new State(source, kind)) {}

Allocator::~Allocator() { state_->release_all(); }

namespace {

// The calling thread's blocks: null before the first request, and again once the thread is ending.
struct ThreadSlot {
  ThreadCache* blocks = nullptr;
  bool ended = false;
};
constinit thread_local ThreadSlot thread_slot;

}  // namespace

/// Gives a thread its blocks, and takes them back when it ends. They are not in the thread's own memory:
/// after a fork, which it does not survive, that memory is used for others.
class Allocator::ThreadUse {
 public:
  explicit ThreadUse(State& state) : state_(state), blocks_(new (std::nothrow) ThreadCache) {
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
    ThreadCache** link = &state_.threads;
    while (*link != blocks_) link = &(*link)->next;
    *link = blocks_->next;
    delete blocks_;
  }
  ThreadUse(const ThreadUse&) = delete;
  ThreadUse& operator=(const ThreadUse&) = delete;

  /// The calling thread's blocks, if it keeps such as these; null if not.
  static ThreadCache* blocks(State& state, size_t bytes) {
    if (bytes > kThreadBytes || !state.threads_keep.load(std::memory_order_relaxed)) return nullptr;
    if (thread_slot.blocks == nullptr && !thread_slot.ended) begin(state);
    return thread_slot.blocks;
  }

 private:
  [[gnu::noinline]] static void begin(State& state) { thread_local ThreadUse use(state); }

  State& state_;
  ThreadCache* blocks_;
};

void* Allocator::allocate(size_t bytes) {
  if (ThreadCache* const mine = ThreadUse::blocks(*state_, bytes))
    if (void* const block = mine->take(size_class(bytes))) return block;
  return allocate_shared(bytes);
}

void* Allocator::allocate_shared(size_t bytes) {
  State& s = *state_;
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
  try {
    pointer = s.take_cached(block);
    if (pointer == nullptr) {
      pointer = s.acquire(block);
      if (pointer == nullptr && s.kind == AllocatorKind::caching) {
        if (s.keeps_for_threads && thread_slot.blocks) s.empty_thread(*thread_slot.blocks);
        s.release_all();
        pointer = s.acquire(block);
      }
      ++s.stats.system_calls;
    }
  } catch (const std::bad_alloc&) {  // no room for the list of blocks
  }
  if (pointer == nullptr) throw out_of_memory();
  if (s.poisons) s.source.poison(pointer, block);
  ++s.stats.requests;
  s.stats.in_use += static_cast<int64_t>(block);
  if (s.stats.in_use > s.stats.peak) s.counted();  // what threads keep may be part of it
  return pointer;
}

void Allocator::deallocate(void* pointer, size_t bytes) noexcept {
  if (pointer == nullptr) return;
  ThreadCache* const mine = ThreadUse::blocks(*state_, bytes);
  if (mine == nullptr || !mine->keep(pointer, size_class(bytes))) deallocate_shared(pointer, bytes);
}

void Allocator::deallocate_shared(void* pointer, size_t bytes) noexcept {
  State& s = *state_;
  const std::unique_lock lock = lock_soon(s.mutex);
  s.take_back(pointer, s.block_bytes(bytes));
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
