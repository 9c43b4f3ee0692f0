// The first epochs of the tutorial's recipe, against those of the same model in PyTorch: means over the seeds
// 42 to 46, printed by tests/fixtures/tutorial_losses.py. The whole recipe is in tutorial_full_test.cpp.
#include "tutorial_run.h"

namespace heed::test {
namespace {

// Seeds differ by 0.015, and our batches of like length by up to 0.025 from PyTorch's, which are drawn at
// random.
constexpr double kTolerance = 0.05;

TEST(TutorialStart, AsTheTutorialHasIt) {
  const TutorialRun run("--epochs 1 --valid-pairs 10");
  ASSERT_EQ(run.losses.size(), 1u);
  EXPECT_NEAR(run.losses[0], 2.402, kTolerance);
}

TEST(TutorialStart, WithSmallEmbeddings) {
  const TutorialRun run("--epochs 2 --valid-pairs 10 --embedding-std 0.088");
  ASSERT_EQ(run.losses.size(), 2u);
  EXPECT_NEAR(run.losses[0], 2.343, kTolerance);
  EXPECT_NEAR(run.losses[1], 1.831, kTolerance);
}

}  // namespace
}  // namespace heed::test
