// Cross-entropy and its gradient on the device, against plain loops in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/runtime.h>

#include "../kernels/cross_entropy_reference.h"
#include "device_buffer.h"
#include "device_test.h"

namespace heed::test {
namespace {

using testing::DeviceBuffer;
using testing::kernel_cases;

// Where the logits lie: `stride` elements apart, with something large and harmless between them.
struct Shape {
  int64_t rows, classes, stride = 0;

  int64_t step() const { return stride == 0 ? classes : stride; }
};

template <class T>
struct Result {
  float loss;
  int64_t counted;
  std::vector<T> glogits;  // of the rows, and
  std::vector<T> between;  // of what lies between them
};

// Targets that are counted where these are a part of more; none: their own.
using Counted = std::vector<int64_t>;

template <class T>
Result<T> run(const Shape& shape, const std::vector<T>& logits, const std::vector<int64_t>& targets,
              const LossOptions& options, const Counted& counted_targets = {}) {
  const int64_t step = shape.step();
  std::vector<T> spread(static_cast<size_t>(shape.rows * step), T(1e30f));
  for (int64_t r = 0; r < shape.rows; ++r)
    std::copy_n(logits.begin() + r * shape.classes, shape.classes, spread.begin() + r * step);
  const DeviceBuffer<T> there(spread), glogits(spread.size());
  const DeviceBuffer<int64_t> ids(targets), counted_ids(counted_targets), counted(1), counted_again(1);
  const DeviceBuffer<float> loss(1), loss_again(1);
  kernels::CrossEntropyForward<T> args{.logits = there.data(),
                                       .targets = ids.data(),
                                       .ignore = options.ignore,
                                       .label_smoothing = options.smoothing,
                                       .mean = options.mean,
                                       .loss = loss.data(),
                                       .counted = counted.data(),
                                       .glogits = glogits.data(),
                                       .rows = shape.rows,
                                       .classes = shape.classes,
                                       .stride = shape.stride,
                                       .counted_targets = counted_ids.data(),
                                       .counted_rows = static_cast<int64_t>(counted_targets.size())};
  cuda::cross_entropy_forward(args);
  args.loss = loss_again.data();
  args.counted = counted_again.data();
  args.glogits = nullptr;
  cuda::cross_entropy_forward(args);
  cuda::synchronize(0);
  Result<T> result{loss.get()[0], counted.get()[0], {}, {}};
  EXPECT_EQ(loss_again.get()[0], result.loss) << "without a gradient";
  EXPECT_EQ(counted_again.get()[0], result.counted) << "without a gradient";
  const std::vector<T> all = glogits.get();
  for (int64_t i = 0; i < shape.rows * step; ++i)
    (i % step < shape.classes ? result.glogits : result.between).push_back(all[static_cast<size_t>(i)]);
  return result;
}

template <class T>
void check(const Shape& shape, const LossOptions& options, const Counted& counted_targets = {}) {
  SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.classes) + " of " +
               std::to_string(shape.step()) + ", ignore " + std::to_string(options.ignore) + ", smoothing " +
               std::to_string(options.smoothing) + (options.mean ? ", mean" : ", sum"));
  ++kernel_cases.count;
  const std::vector<int64_t> targets = random_targets(shape.rows, shape.classes, options, 7);
  std::vector<T> logits = random_values<T>(shape.rows * shape.classes, 8);
  const auto exact = plain_cross_entropy<double, double>(logits, targets, shape.classes, options,
                                                         counted_targets.empty() ? targets : counted_targets);
  for (int64_t r = 0; r < shape.rows; ++r)  // rows that nobody may read
    if (targets[static_cast<size_t>(r)] == options.ignore)
      std::fill_n(logits.begin() + r * shape.classes, shape.classes, quiet_nan<T>());
  const Result<T> got = run(shape, logits, targets, options, counted_targets);
  EXPECT_EQ(got.counted, exact.counted);
  EXPECT_NEAR(got.loss, exact.loss[0], 2e-6 * std::abs(exact.loss[0]));
  // Exponentials of the device are good to 2^-21.
  const double weight = options.mean ? 1.0 / static_cast<double>(std::max<int64_t>(exact.counted, 1)) : 1.0;
  const double rounding = sizeof(T) == 2 ? epsilon<T>() / 2 : 0;
  for (size_t i = 0; i < got.glogits.size(); ++i) {
    const double right = exact.glogits[i];
    ASSERT_NEAR(static_cast<float>(got.glogits[i]), right, 1e-6 * weight + rounding * std::abs(right)) << i;
    if (targets[i / static_cast<size_t>(shape.classes)] == options.ignore) {
      ASSERT_EQ(static_cast<float>(got.glogits[i]), 0);
    }
  }
  const T untouched = DeviceBuffer<T>(1).get()[0];
  for (const T value : got.between)
    ASSERT_TRUE(static_cast<float>(value) == 0 || std::memcmp(&value, &untouched, sizeof value) == 0);
}

template <class T>
class CrossEntropyKernel : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyKernel, testing::KernelTypes);

// Rows of a warp and of a block, by vectors and without, kept in shared memory and too long for that, and
// with something between them; fewer and more than one launch takes.
constexpr Shape kShapes[] = {{70, 33},  {5, 40},         {300, 8},          {2100, 5},  {5, 1025},
                             {5, 1032}, {3, 4099},       {2, 8201},         {2, 16392}, {70, 37, 40},
                             {6, 1, 8}, {5, 1029, 1032}, {2, 16389, 16392}, {1, 50312}, {1, 1}};

TYPED_TEST(CrossEntropyKernel, Shapes) {
  for (const Shape& shape : kShapes) {
    check<TypeParam>(shape, {.smoothing = 0.1});
    if (shape.rows * shape.classes < 3000) check<TypeParam>(shape, {.ignore = 0, .mean = false});
  }
}

TYPED_TEST(CrossEntropyKernel, ThePartOfABatchIsWeightedByTheWhole) {
  Counted all(3000, 1);
  all[5] = all[2900] = -100;
  for (const Shape& shape : {Shape{6, 33}, Shape{6, 1032}}) check<TypeParam>(shape, {}, all);
}

TYPED_TEST(CrossEntropyKernel, NothingThatCountsIsZero) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{4, 9}, Shape{4, 1032}, Shape{0, 9}}) {
    const std::vector<T> logits(static_cast<size_t>(shape.rows * shape.classes), quiet_nan<T>());
    const std::vector<int64_t> targets(static_cast<size_t>(shape.rows), -100);
    const Result<T> got = run(shape, logits, targets, {});
    EXPECT_EQ(got.loss, 0);
    EXPECT_EQ(got.counted, 0);
    for (const T g : got.glogits) ASSERT_EQ(static_cast<float>(g), 0);
  }
}

TEST(CrossEntropyExtremes, ClassesThatAreImpossible) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {0, -infinity, 0, 1e30f, -1e30f, 100};
  const Result<float> got = run<float>({2, 3}, logits, {0, 0}, {.mean = false});
  EXPECT_FLOAT_EQ(got.loss, std::log(2.0f));
  const float exact[] = {-0.5f, 0, 0.5f, 0, 0, 0};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got.glogits[i], exact[i], 1e-6f) << i;
  EXPECT_EQ(run<float>({2, 3}, logits, {1, 0}, {}).loss, infinity);
}

// By vectors, with a rest, and without; the last in more than one round of its blocks.
TYPED_TEST(CrossEntropyKernel, Backward) {
  using T = TypeParam;
  struct Size {
    int64_t count;
    size_t offset;
  };
  for (const auto& [count, offset] : {Size{0, 0}, {1, 0}, {83, 0}, {5003, 0}, {5003, 1}, {525'003, 1}}) {
    const std::vector<T> glogits = random_values<T>(count, 9), before = random_values<T>(count, 10);
    for (const float scale : {1.0f, 2.0f, -1.75f}) {
      if (count > 10'000 && scale != 2) continue;
      ++kernel_cases.count;
      const DeviceBuffer<T> g(glogits, offset), gx(glogits.size(), offset), added(before, offset),
          in_place(glogits, offset);
      const DeviceBuffer<float> gloss(std::vector<float>{scale});
      cuda::cross_entropy_backward<T>({g.data(), gloss.data(), gx.data(), count, false});
      cuda::cross_entropy_backward<T>({g.data(), gloss.data(), added.data(), count, true});
      cuda::cross_entropy_backward<T>({in_place.data(), gloss.data(), in_place.data(), count, false});
      const std::vector<T> got = gx.get(), got_added = added.get(), got_in_place = in_place.get();
      for (size_t i = 0; i < got.size(); ++i) {
        const float right = static_cast<float>(glogits[i]) * scale;
        ASSERT_EQ(static_cast<float>(got[i]), static_cast<float>(T(right))) << i;
        ASSERT_EQ(static_cast<float>(got_in_place[i]), static_cast<float>(got[i])) << i;
        const double sum = static_cast<double>(right) + static_cast<double>(static_cast<float>(before[i]));
        ASSERT_NEAR(static_cast<float>(got_added[i]), sum, epsilon<T>() * (std::abs(sum) + 4)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace heed::test
