// Initial values: their bounds and deviations, and the rules that choose them by name.
#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/nn/attention/multi_head_attention.h>
#include <heed/nn/init.h>
#include <heed/nn/inspection.h>

#include "expect_error.h"
#include "op_check.h"

namespace heed::nn {
namespace {

// Of 10,000 and more numbers: the deviation of a uniform distribution is its bound / √3, and the largest
// comes within 1 % of the bound.
void expect_uniform(const Tensor& x, double bound) {
  const Statistics s = statistics(x);
  EXPECT_LE(s.maximum, bound);
  EXPECT_GT(s.maximum, 0.99 * bound);
  EXPECT_GE(s.minimum, -bound);
  EXPECT_LT(s.minimum, -0.99 * bound);
  EXPECT_NEAR(s.deviation, bound / std::sqrt(3.0), 0.02 * bound);
}

void check_initializers(Device device) {
  Generator generator(1);
  const Tensor w = empty({96, 160}, {.device = device});
  initialize(w, Initializer::xavier_uniform, generator);
  expect_uniform(w, std::sqrt(6.0 / (96 + 160)));
  initialize(w, Initializer::kaiming_uniform, generator);
  expect_uniform(w, std::sqrt(6.0 / 160));
  for (const auto& [initializer, deviation] :
       {std::pair(Initializer::xavier_normal, std::sqrt(2.0 / (96 + 160))),
        std::pair(Initializer::kaiming_normal, std::sqrt(2.0 / 160)), std::pair(Initializer::normal, 0.02)}) {
    initialize(w, initializer, generator);
    EXPECT_NEAR(statistics(w).deviation, deviation, 0.03 * deviation);
  }
}

TEST(Initialization, BoundsAndDeviations) {
  for (const Device device : test::devices()) {
    SCOPED_TRACE(concat("on ", device));
    check_initializers(device);
  }
}

// q, k and v on top of each other count three times the rows as fan_out, unless the rule says that they are
// three.
TEST(Initialization, StackedMatricesHaveFansOfTheirOwn) {
  Generator generator(1);
  MultiHeadAttention attention(64, 4);
  initialize(attention, matrix_rules(Initializer::xavier_uniform), generator);
  expect_uniform(attention.in_proj_weight, std::sqrt(6.0 / (64 + 3 * 64)));
  initialize(attention, {{"*in_proj_weight", Initializer::xavier_uniform, 0, 3}}, generator);
  expect_uniform(attention.in_proj_weight, std::sqrt(6.0 / (64 + 64)));
  test::expect_error<ShapeError>(
      [&] {
        initialize(attention, {{"*in_proj_weight", Initializer::xavier_uniform, 0, 5}}, generator);
      },
      {"in_proj_weight", "[192, 64]", "5 matrices"});
}

}  // namespace
}  // namespace heed::nn
