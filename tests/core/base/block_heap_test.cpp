#include <cstddef>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/memory/block_heap.h>

namespace heed {
namespace {

// The heap never touches the memory: addresses will do.
std::byte* at(size_t address) { return reinterpret_cast<std::byte*>(address); }

std::vector<std::pair<size_t, size_t>> unused_segments(BlockHeap& heap) {
  std::vector<std::pair<size_t, size_t>> released;
  heap.release_unused(
      [&](void* segment, size_t bytes) { released.emplace_back(reinterpret_cast<size_t>(segment), bytes); },
      [](void*, size_t) {});
  return released;
}

TEST(BlockHeap, CutsTheSmallestThatHoldsIt) {
  BlockHeap heap;
  EXPECT_EQ(heap.take(1), nullptr);
  heap.add(at(10000), 1000);
  heap.add(at(50000), 300);
  EXPECT_EQ(heap.take(1001), nullptr);
  EXPECT_EQ(heap.take(200), at(50100));
  EXPECT_EQ(heap.take(200), at(10800));
  EXPECT_EQ(heap.take(100), at(50000));
  EXPECT_EQ(heap.take(800), at(10000));
  EXPECT_EQ(heap.take(1), nullptr);
}

TEST(BlockHeap, TellsWhatIsFreeBesideBlocksThatAreTaken) {
  BlockHeap heap;
  heap.add(at(1000), 500);
  heap.add(at(5000), 500);
  for (size_t address : {1400, 1300, 1200, 1100}) EXPECT_EQ(heap.take(100), at(address));
  heap.give_back(at(1300));
  std::vector<std::pair<size_t, size_t>> released, discarded;
  const auto into = [](auto& list) {
    return [&list](void* block, size_t bytes) { list.emplace_back(reinterpret_cast<size_t>(block), bytes); };
  };
  heap.release_unused(into(released), into(discarded));
  using Blocks = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(released, (Blocks{{5000, 500}}));
  EXPECT_EQ(discarded, (Blocks{{1000, 100}, {1300, 100}}));
  EXPECT_EQ(heap.take(100), at(1000)) << "what was discarded can be taken";
  EXPECT_EQ(heap.take(100), at(1300));
}

TEST(BlockHeap, OfEqualsTheOneInTheOldestSegment) {
  BlockHeap heap;
  heap.add(at(9000), 100);
  heap.add(at(1000), 100);
  heap.add(at(5000), 100);
  EXPECT_EQ(heap.take(60), at(9040));
  EXPECT_EQ(heap.take(60), at(1040));
  EXPECT_EQ(heap.take(40), at(9000));
  heap.give_back(at(9040));
  heap.give_back(at(1040));
  EXPECT_EQ(heap.take(60), at(9040));
  EXPECT_EQ(heap.take(60), at(1040));
  EXPECT_EQ(heap.take(60), at(5040));
}

TEST(BlockHeap, NeighboursAreJoinedWhicheverComesBackFirst) {
  const std::vector<std::vector<size_t>> orders{{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const std::vector<size_t>& order : orders) {
    BlockHeap heap;
    heap.add(at(1000), 300);
    void* blocks[3];
    for (void*& block : blocks) block = heap.take(100);
    EXPECT_EQ(heap.take(1), nullptr);
    for (const size_t i : order) heap.give_back(blocks[i]);
    EXPECT_EQ(heap.take(300), at(1000));
  }
}

TEST(BlockHeap, SegmentsSideBySideStayApart) {
  BlockHeap heap;
  heap.add(at(2000), 1000);
  heap.add(at(1000), 1000);
  heap.add(at(3000), 1000);
  EXPECT_EQ(heap.take(1001), nullptr);
  void* const block = heap.take(1000);
  EXPECT_EQ(block, at(2000));
  using Segments = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(unused_segments(heap), (Segments{{1000, 1000}, {3000, 1000}}));
  EXPECT_EQ(unused_segments(heap), Segments{});
  heap.give_back(block);
  EXPECT_EQ(unused_segments(heap), (Segments{{2000, 1000}}));
  EXPECT_EQ(heap.take(1), nullptr);
}

// Beside a map of what is taken: no two blocks overlap or leave their segment, and in the end all is whole.
TEST(BlockHeap, AnyOrderOfManyBlocks) {
  constexpr size_t kSegment = 100000;
  std::mt19937 random(1);
  BlockHeap heap;
  std::map<size_t, size_t> taken;  // begin and end
  size_t segments = 0;
  for (int i = 0; i < 20000; ++i) {
    if (!taken.empty() && (i >= 10000 || random() % 2)) {
      auto block = taken.begin();
      std::advance(block, random() % taken.size());
      heap.give_back(at(block->first));
      taken.erase(block);
      continue;
    }
    const size_t bytes = 1 + random() % 5000;
    void* block = heap.take(bytes);
    if (block == nullptr) {
      heap.add(at(++segments * kSegment), kSegment);
      block = heap.take(bytes);
    }
    const auto begin = reinterpret_cast<size_t>(block), end = begin + bytes;
    ASSERT_EQ(begin / kSegment, (end - 1) / kSegment);
    const auto next = taken.lower_bound(begin);
    ASSERT_TRUE(next == taken.end() || end <= next->first);
    ASSERT_TRUE(next == taken.begin() || std::prev(next)->second <= begin);
    taken[begin] = end;
  }
  while (!taken.empty()) {
    heap.give_back(at(taken.begin()->first));
    taken.erase(taken.begin());
  }
  const auto released = unused_segments(heap);
  EXPECT_EQ(released.size(), segments);
  for (const auto& segment : released) EXPECT_EQ(segment.second, kSegment);
}

}  // namespace
}  // namespace heed
