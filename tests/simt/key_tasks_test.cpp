// The order of the tasks of Hopper's attention backward (kernels/cuda/hopper/key_tasks.cuh).
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/cuda/hopper/key_tasks.cuh>

namespace heed::cuda::hopper {
namespace {

std::vector<std::tuple<int, int, int>> all(const KeyTasks& tasks) {
  std::vector<std::tuple<int, int, int>> found;
  for (unsigned i = 0; tasks[i].there(); ++i)
    found.emplace_back(tasks[i].sequence, tasks[i].key_head, tasks[i].stretch);
  return found;
}

TEST(KeyTasks, SequencesOfAHeadTakeTurnsLastStretchFirst) {
  const KeyTasks tasks{.sequences = 3, .heads = 1, .stretches = 2, .together = 2};
  EXPECT_EQ(all(tasks), (std::vector<std::tuple<int, int, int>>{
                            {0, 0, 1}, {1, 0, 1}, {0, 0, 0}, {1, 0, 0}, {2, 0, 1}, {2, 0, 0}}));
}

TEST(KeyTasks, EachIsGivenOnceAfterTheStretchBehindIt) {
  for (const unsigned together : {1u, 2u, 4u, 7u}) {
    const KeyTasks tasks{.sequences = 3, .heads = 2, .stretches = 5, .together = together};
    std::map<std::pair<int, int>, int> next;  // stretches of a sequence and head
    for (const auto& [sequence, head, stretch] : all(tasks)) {
      ASSERT_TRUE(sequence < 3 && head >= 0 && head < 2);
      const auto place = next.try_emplace({sequence, head}, 4).first;
      EXPECT_EQ(stretch, place->second--);
    }
    EXPECT_EQ(next.size(), 6u);
    EXPECT_EQ(all(tasks).size(), tasks.count());
    EXPECT_FALSE(tasks[tasks.count() + 9].there());
  }
}

TEST(KeyTasks, ThoseThatBeginTogetherAreOfDifferentSequencesOrHeads) {
  const KeyTasks tasks{.sequences = 3, .heads = 2, .stretches = 5, .together = 4};
  std::set<std::pair<int, int>> planes;
  for (unsigned i = 0; i < 4; ++i) planes.insert({tasks[i].sequence, tasks[i].key_head});
  EXPECT_EQ(planes.size(), 4u);
}

}  // namespace
}  // namespace heed::cuda::hopper
