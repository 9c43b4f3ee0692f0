// The CPU's kernels make no subnormal numbers, and leave the calling thread's mode as they found it.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/float_mode.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>

namespace heed {
namespace {

constexpr float kSubnormal = 1e-40f, kSmall = 2e-38f;

float first(const Tensor& x) { return x.to_vector<float>().front(); }

class Subnormals : public ::testing::Test {
 protected:
  void SetUp() override {
    if (detail::kZeroResults == 0) GTEST_SKIP() << "this processor's modes are unknown";
  }
  void TearDown() override { EXPECT_EQ(detail::float_mode(), before_); }

  const uint32_t before_ = detail::float_mode();
  const Tensor subnormal_ = tensor(std::vector<float>(100, kSubnormal), {10, 10}),
               small_ = tensor(std::vector<float>(100, kSmall), {10, 10});
};

TEST_F(Subnormals, NoResultIsOne) {
  for (const Tensor& y :
       {small_ * 0.1, small_ / 4.0, subnormal_ * 1.0, exp(full({10, 10}, -95)),
        matmul(small_, full({10, 10}, 1e-3)), softmax(tensor({0.0f, -95.0f}).reshape({1, 2})),
        small_.to(DType::f64).to(DType::f32) * 0.25, mean(small_ * 0.6)})
    for (float value : y.to_vector<float>()) EXPECT_NE(std::fpclassify(value), FP_SUBNORMAL);
}

TEST_F(Subnormals, ElementwiseOperationsReadThem) {
  EXPECT_EQ(first(zeros({10, 10}) / subnormal_), 0.0f);
  EXPECT_EQ(first(subnormal_ / subnormal_), 1.0f);
  EXPECT_FLOAT_EQ(first(subnormal_ * 1e10), kSubnormal * 1e10f);
  EXPECT_FLOAT_EQ(first(log(subnormal_)), std::log(kSubnormal));
  EXPECT_FLOAT_EQ(first(sqrt(subnormal_)), std::sqrt(kSubnormal));
  EXPECT_TRUE(all(greater(subnormal_, zeros({10, 10}))).item<bool>());
  EXPECT_EQ(subnormal_.to(DType::f64).to_vector<double>().front(), double(kSubnormal));
  EXPECT_EQ(first(max(subnormal_)), kSubnormal);
  EXPECT_EQ(first(min(subnormal_)), kSubnormal);
  EXPECT_EQ(argmax(tensor({0.0f, kSubnormal}).reshape({2}), 0).item<int64_t>(), 1);
}

TEST_F(Subnormals, MovesKeepThem) {
  EXPECT_EQ(first(subnormal_.clone()), kSubnormal);
  EXPECT_EQ(first(subnormal_.transpose(0, 1).contiguous()), kSubnormal);
  EXPECT_EQ(first(where(greater(small_, subnormal_), subnormal_, small_)), kSubnormal);
}

TEST_F(Subnormals, AreZeroToProducts) {
  EXPECT_EQ(first(matmul(subnormal_, full({10, 10}, 1e30))), 0.0f);
  EXPECT_EQ(first(linear(subnormal_, full({10, 10}, 1e30))), 0.0f);
}

TEST_F(Subnormals, ResultsDoNotDependOnTheThreads) {
  const int before = thread_count();
  const Tensor x = tensor(std::vector<float>(200000, kSmall), {2000, 100});
  for (int threads : {1, 4}) {
    set_thread_count(threads);
    for (float value : (x * 0.3).to_vector<float>()) ASSERT_EQ(value, 0.0f);
  }
  set_thread_count(before);
}

TEST_F(Subnormals, TheCallersModeOutlivesErrors) {
  EXPECT_THROW(embedding(tensor({5}).to(DType::i64), ones({3, 4})), Error);
  EXPECT_EQ(detail::float_mode(), before_);
  volatile float small = kSmall;
  EXPECT_GT(small * 0.1f, 0.0f);
}

// A caller who has chosen the mode keeps it.
TEST_F(Subnormals, AChosenModeStays) {
  {
    const detail::NoSubnormals chosen(true);
    const uint32_t mode = detail::float_mode();
    first(small_ * 0.1);
    EXPECT_EQ(detail::float_mode(), mode);
  }
}

}  // namespace
}  // namespace heed
