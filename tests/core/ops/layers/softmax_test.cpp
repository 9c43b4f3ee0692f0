#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor reference(const Tensor& x, int64_t axis, bool log) {
  const Tensor last = x.transpose(axis, -1).contiguous(), y = empty_like(last);
  const int64_t cols = last.size(-1), rows = cols ? last.numel() / cols : 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double* in = last.data<double>() + r * cols;
    double* out = y.data<double>() + r * cols;
    double largest = -kInfinity, sum = 0;
    for (int64_t c = 0; c < cols; ++c) largest = std::max(largest, in[c]);
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(in[c] - largest);
    for (int64_t c = 0; c < cols; ++c)
      out[c] = log ? in[c] - largest - std::log(sum) : std::exp(in[c] - largest) / sum;
  }
  return y.transpose(axis, -1);
}

void check(const Shape& shape, int64_t axis = -1) {
  for (bool log : {false, true}) {
    check_composed({.name = concat(log ? "log_softmax " : "softmax ", shape, " axis ", axis),
                    .inputs = {normal(shape, 1) * 3.0},
                    .function =
                        [=](const Tensors& in) {
                          return Tensors{log ? log_softmax(in[0], axis) : softmax(in[0], axis)};
                        },
                    .reference = [=](const Tensors& in) { return Tensors{reference(in[0], axis, log)}; },
                    .gradient_ulps = log ? 3.0 : 2.0});  // it takes e^y of a rounded y
  }
}

TEST(Softmax, SizesThatFillNoVector) {
  for (int64_t cols : {1, 2, 7, 31, 33, 257, 1025}) check({3, cols});
}

TEST(Softmax, SizesThatFillVectors) {
  for (int64_t cols : {64, 2048}) check({3, cols});
}

// Longer than the CUDA kernels keep in registers, with vectors and without.
TEST(Softmax, LongRows) {
  for (int64_t cols : {8200, 8201}) check({2, cols});
}

TEST(Softmax, AnyAxis) {
  check({4});
  check({2, 3, 4}, 0);
  check({2, 3, 4}, 1);
  check({2, 3, 4}, -3);
  check({5, 2}, -2);
}

TEST(Softmax, NothingToNormalise) {
  check({0, 5});
  check({3, 0});
}

TEST(Softmax, LargeValuesDoNotOverflow) {
  const Tensor x = tensor<double>({1e300, 1e300, -1e300}, kCpu);
  EXPECT_EQ(softmax(x).to_vector<double>(), (std::vector<double>{0.5, 0.5, 0}));
  EXPECT_NEAR(log_softmax(x).to_vector<double>()[0], -std::log(2.0), 1e-15);
}

TEST(Softmax, MaskedEntriesAndRowsAreZeroWithZeroGradient) {
  const std::vector<double> values = {0, -kInfinity, 0, -kInfinity, -kInfinity, -kInfinity};
  const Tensor x = tensor(values, {2, 3}).set_requires_grad();
  const Tensor y = softmax(x);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0.5, 0, 0.5, 0, 0, 0}));
  y.backward(tensor(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{-0.5, 0, 0.5, 0, 0, 0}));
  EXPECT_EQ(log_softmax(x.detach()).to_vector<double>()[4], -kInfinity);
}

TEST(Softmax, Errors) {
  expect_error<IndexError>([] { softmax(zeros({2, 3}), 2); }, "softmax");
  EXPECT_THROW(softmax(zeros({})), Error);
  EXPECT_THROW(log_softmax(zeros({2}, {.dtype = DType::i64})), DTypeError);
}

TEST(Softmax, ChangedResultIsNoticed) {
  const Tensor x = normal({2, 4}, 1).set_requires_grad();
  for (bool log : {false, true}) {
    const Tensor y = log ? log_softmax(x) : softmax(x);
    expect_change_is_noticed(y, y);
  }
}

TEST(Softmax, GraphsThatAreDroppedGiveTheirMemoryBack) {
  const Tensor x = normal({64, 64}, 1).set_requires_grad();
  const int64_t before = cpu_allocator().stats().in_use;
  for (int i = 0; i < 3; ++i) softmax(x);
  EXPECT_EQ(cpu_allocator().stats().in_use, before);
}

}  // namespace
}  // namespace heed::test
