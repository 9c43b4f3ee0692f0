#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/base/memory/allocator.h>

namespace heed {
namespace {

struct FakeSource {
  int64_t live = 0;  // bytes acquired and not released
  int64_t limit = 1 << 20;
  int64_t discarded = 0;

  MemorySource source() {
    return {.name = "fake",
            .acquire = [this](size_t bytes) -> void* {
              if (live + static_cast<int64_t>(bytes) > limit) return nullptr;
              live += static_cast<int64_t>(bytes);
              return std::aligned_alloc(128, bytes);
            },
            .release =
                [this](void* pointer, size_t bytes) {
                  live -= static_cast<int64_t>(bytes);
                  std::free(pointer);
                },
            .poison = [](void* pointer, size_t bytes) { std::memset(pointer, 0xff, bytes); },
            .segment_bytes = 32 << 20,
            .discard = [this](void*, size_t bytes) { discarded += static_cast<int64_t>(bytes); }};
  }
};

TEST(Allocator, ReusesWhatWasFreedAndReturnsEverything) {
  FakeSource fake;
  {
    Allocator allocator(fake.source(), AllocatorKind::caching);
    for (size_t bytes : {0, 1, 127, 128, 129, 512, 513, 640, 641, 1000, 4096, 4097, 100000}) {
      void* first = allocator.allocate(bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 128, 0u);
      std::memset(first, 1, bytes);
      allocator.deallocate(first, bytes);
      const int64_t calls = allocator.stats().system_calls;
      void* second = allocator.allocate(bytes);
      EXPECT_EQ(first, second);
      EXPECT_EQ(allocator.stats().system_calls, calls);
      allocator.deallocate(second, bytes);
    }
    EXPECT_EQ(allocator.stats().in_use, 0);
    EXPECT_EQ(allocator.stats().cached, fake.live);
    allocator.release_cached();
    EXPECT_EQ(fake.live, 0);
    allocator.deallocate(allocator.allocate(1000), 1000);
  }
  EXPECT_EQ(fake.live, 0);
}

TEST(Allocator, OutOfMemoryGivesTheCacheBackAndCanBeRepeated) {
  FakeSource fake;
  Allocator allocator(fake.source(), AllocatorKind::caching);
  void* half = allocator.allocate(1 << 19);
  allocator.deallocate(allocator.allocate(1 << 18), 1 << 18);
  void* other = allocator.allocate(1 << 19);  // fits only after the cached quarter is released
  EXPECT_EQ(allocator.stats().cached, 0);
  try {
    allocator.allocate(1 << 10);
    FAIL() << "memory was there";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("fake: cannot allocate 1024 bytes; 1048576 bytes are in use"),
              std::string::npos)
        << error.what();
  }
  allocator.deallocate(half, 1 << 19);
  void* again = allocator.allocate(1 << 10);
  allocator.deallocate(again, 1 << 10);
  allocator.deallocate(other, 1 << 19);
}

TEST(Allocator, LimitAndAbsurdSizes) {
  FakeSource unlimited;
  Allocator allocator(unlimited.source(), AllocatorKind::plain);
  EXPECT_THROW(allocator.allocate(~size_t{0}), OutOfMemory);
  EXPECT_THROW(allocator.set_limit(-1), ConfigError);
  FakeSource fake;
  Allocator limited(fake.source(), AllocatorKind::caching);
  limited.set_limit(1024);
  EXPECT_THROW(limited.allocate(2048), OutOfMemory);
  EXPECT_EQ(limited.stats().in_use, 0);
}

TEST(Allocator, AnArenaKeepsItsBlocksUntilItIsDestroyed) {
  FakeSource fake;
  fake.limit = 4096;
  {
    Allocator allocator(fake.source(), AllocatorKind::arena);
    void* first = allocator.allocate(3000);
    allocator.deallocate(first, 3000);
    EXPECT_EQ(allocator.allocate(3000), first);
    allocator.deallocate(first, 3000);
    allocator.release_cached();
    EXPECT_THROW(allocator.allocate(2000), OutOfMemory) << "not even then is a block given back";
    EXPECT_EQ(fake.live, 3072);
    EXPECT_EQ(allocator.stats().cached, 3072);
  }
  EXPECT_EQ(fake.live, 0);
}

TEST(Allocator, LargeBlocksShareTheMemoryThatOthersLeft) {
  FakeSource fake;
  fake.limit = 64 << 20;
  Allocator allocator(fake.source(), AllocatorKind::caching);
  constexpr size_t kSize = 3 << 20;
  void* blocks[10];
  for (void*& block : blocks) block = allocator.allocate(kSize);
  EXPECT_EQ(allocator.stats().system_calls, 1);
  EXPECT_EQ(allocator.stats().in_use, 10 * int64_t{kSize});
  EXPECT_EQ(allocator.stats().cached, fake.live - 10 * int64_t{kSize});
  for (int i : {4, 3, 5}) allocator.deallocate(blocks[i], kSize);
  void* const joined = allocator.allocate(3 * kSize - 1);
  EXPECT_EQ(joined, blocks[5]) << "they lie from the segment's end on";
  EXPECT_EQ(allocator.stats().in_use, 10 * int64_t{kSize});
  allocator.release_cached();
  EXPECT_EQ(fake.live, 32 << 20) << "a segment is given back when nothing of it is in use,";
  EXPECT_EQ(fake.discarded, fake.live - 10 * int64_t{kSize}) << "and until then what is under the rest";
  allocator.deallocate(joined, 3 * kSize - 1);
  for (int i : {0, 1, 2, 6, 7, 8, 9}) allocator.deallocate(blocks[i], kSize);
  allocator.release_cached();
  EXPECT_EQ(fake.live, 0);
  EXPECT_EQ(allocator.stats().cached, 0);

  void* const alone = allocator.allocate(20 << 20);  // in a segment of its own
  EXPECT_EQ(fake.live, 20 << 20);
  void* const rest = allocator.allocate(44 << 20);  // and this one without any to spare
  EXPECT_EQ(fake.live, 64 << 20);
  EXPECT_THROW(allocator.allocate(1 << 19), OutOfMemory);
  allocator.deallocate(rest, 44 << 20);
  allocator.deallocate(alone, 20 << 20);
}

TEST(Allocator, PlainFillsWithNan) {
  FakeSource fake;
  Allocator allocator(fake.source(), AllocatorKind::plain);
  auto* values = static_cast<float*>(allocator.allocate(100 * sizeof(float)));
  for (int i = 0; i < 100; ++i) EXPECT_NE(values[i], values[i]);
  allocator.deallocate(values, 100 * sizeof(float));
  EXPECT_EQ(fake.live, 0);
}

// What a thread keeps for itself counts as cached, is used again without a look at the others', and comes
// back when the thread ends.
TEST(Allocator, ThreadsKeepBlocksForThemselves) {
  Allocator& allocator = cpu_allocator();
  if (allocator.kind() != AllocatorKind::caching) GTEST_SKIP() << "the plain allocator keeps nothing";
  const MemoryStats before = allocator.stats();
  std::thread([&] {
    void* const first = allocator.allocate(3000);
    EXPECT_EQ(allocator.stats().in_use, before.in_use + 3072);
    allocator.deallocate(first, 3000);
    EXPECT_EQ(allocator.stats().in_use, before.in_use);
    const int64_t calls = allocator.stats().system_calls;
    std::thread([&] {
      void* const other = allocator.allocate(3000);
      EXPECT_NE(other, first) << "it is the first thread's";
      allocator.deallocate(other, 3000);
    }).join();
    EXPECT_LE(allocator.stats().system_calls, calls + 1);
    void* const second = allocator.allocate(3000);
    EXPECT_EQ(second, first);
    EXPECT_EQ(allocator.stats().requests, before.requests + 3);
    allocator.deallocate(second, 3000);
  }).join();
  const MemoryStats after = allocator.stats();
  EXPECT_EQ(after.in_use, before.in_use);
  EXPECT_EQ(after.requests, before.requests + 3);
  EXPECT_EQ(after.cached - before.cached, 3072 * (after.system_calls - before.system_calls));
}

#ifdef __linux__
/// What the system says of the mapping that holds `address`.
std::string flags_of_mapping(uintptr_t address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin, end;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
      inside = begin <= address && address < end;
    else if (inside && line.rfind("VmFlags:", 0) == 0)
      return line + " ";
  }
  return {};
}

TEST(Allocator, LargeBlocksAskForLargePages) {
  constexpr size_t kBytes = 6 << 20, kPage = 2 << 20;
  Allocator& allocator = cpu_allocator();
  auto* const block = static_cast<char*>(allocator.allocate(kBytes));
  const auto address = reinterpret_cast<uintptr_t>(block);
  EXPECT_EQ(address % kPage, 0u);
  std::memset(block, 1, kBytes);
  if (std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    for (const uintptr_t at : {address, address + 2 * kPage - 1})
      EXPECT_NE(flags_of_mapping(at).find(" hg "), std::string::npos) << flags_of_mapping(at);
  }
  allocator.deallocate(block, kBytes);
}
#endif

TEST(Allocator, ABlockMayBeFreedByAnotherThread) {
  Allocator& allocator = cpu_allocator();
  const int64_t before = allocator.stats().in_use;
  for (int i = 0; i < 100; ++i) {
    void* const block = allocator.allocate(40000);
    std::thread([&] { allocator.deallocate(block, 40000); }).join();
  }
  EXPECT_EQ(allocator.stats().in_use, before);
}

TEST(Allocator, ALimitCountsWhatThreadsTakeFromTheirOwn) {
  Allocator& allocator = cpu_allocator();
  allocator.deallocate(allocator.allocate(5000), 5000);
  allocator.set_limit(allocator.stats().in_use + 2000);
  EXPECT_THROW(allocator.allocate(5000), OutOfMemory);
  allocator.deallocate(allocator.allocate(1000), 1000);
  allocator.set_limit(0);
  allocator.deallocate(allocator.allocate(5000), 5000);
}

}  // namespace
}  // namespace heed
