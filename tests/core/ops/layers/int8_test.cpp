// Weights kept as 8-bit integers: what they hold, and what linear and embedding make of them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/creation.h>
#include <heed/core/generator.h>
#include <heed/core/int8_weight.h>
#include <heed/core/losses.h>
#include <heed/core/ops.h>
#include <heed/core/parameters.h>

#include "expect_error.h"

namespace heed {
namespace {

using test::expect_error;

Tensor random(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  const Tensor x = empty(shape);
  normal_(x, 0, 1, generator);
  return x;
}

Tensor int8_parameter(const Tensor& values) {
  const Tensor parameter = zeros(values.shape());
  parameter.set_requires_grad();
  keep_as_int8(parameter, values);
  return parameter;
}

Tensor all_ids(const Tensor& x) { return arange(0, x.size(0), 1, {DType::i64, kCpu}); }

// Elements of 8 bits with a scale for each `block` of a row, in f64.
std::vector<double> rounded(const Tensor& x, int64_t block) {
  const std::vector<float> from = x.to_vector<float>();
  const int64_t cols = x.size(-1);
  std::vector<double> to(from.size());
  for (int64_t row = 0; row < x.numel() / cols; ++row)
    for (int64_t first = 0; first < cols; first += block) {
      const int64_t last = std::min(first + block, cols);
      const auto at = [&](int64_t i) { return static_cast<size_t>(row * cols + i); };
      double most = 0;
      for (int64_t i = first; i < last; ++i) most = std::max<double>(most, std::abs(from[at(i)]));
      for (int64_t i = first; i < last; ++i)
        to[at(i)] = most == 0 ? 0 : std::nearbyint(from[at(i)] * 127 / most) * most / 127;
    }
  return to;
}

TEST(Int8Weight, HoldsTheNearestOf255MultiplesOfAScaleOfEachRow) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 5}, {16, 64}, {17, 66}, {40, 200}}) {
    const Tensor values = random({rows, cols}, 3);
    const Tensor kept = int8_parameter(values);
    EXPECT_TRUE(is_int8(kept));
    EXPECT_EQ(kept.dtype(), DType::f32);
    const std::vector<float> got = int8_rows(kept, all_ids(kept)).to_vector<float>();
    const std::vector<double> expected = rounded(values, cols);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
  }
}

TEST(Int8Weight, TakesAQuarterOfTheMemory) {
  const Tensor values = random({512, 512}, 3);
  EXPECT_LE(int8_parameter(values).storage()->bytes(), 512 * 512 + 512 * 4);
}

TEST(Int8Linear, IsCloseToTheProductOfTheWeightsThemselves) {
  const NoGrad no_grad;
  const Tensor x = random({4, 576}, 1), w = random({192, 576}, 2);
  const Tensor difference = linear(x, int8_parameter(w)) - linear(x, w);
  // Errors of a 127th of some 3 deviations, uniform, on either side: 0.0096 of each product's.
  EXPECT_LT(sqrt(mean(difference * difference)).item<double>(), 0.0115 * std::sqrt(576.0));
}

TEST(Int8Linear, HasTheSameBitsForAnyThreadsRowsAndSlices) {
  const NoGrad no_grad;
  const Tensor x = random({300, 200}, 1), w = int8_parameter(random({700, 200}, 2));
  const int threads = thread_count();
  set_thread_count(1);
  const std::vector<float> one = linear(x, w).to_vector<float>();
  set_thread_count(3);
  EXPECT_EQ(linear(x, w).to_vector<float>(), one);
  set_thread_count(threads);
  const Tensor whole = linear(x, w);
  EXPECT_TRUE(array_equal(linear(x.slice(0, 7, 8), w), whole.slice(0, 7, 8)));
  EXPECT_TRUE(array_equal(linear(x, w.slice(0, 37, 401)), whole.slice(1, 37, 401)));
  EXPECT_TRUE(array_equal(linear(x, w, {}, {.activation = Activation::silu}), silu(whole)));
}

TEST(Int8Linear, RowsWithNaNOrInfinityAreNaN) {
  const NoGrad no_grad;
  const Tensor x = random({3, 70}, 1), w = random({5, 70}, 2);
  x.select(0, 1).slice(0, 69, 70).fill_(std::numeric_limits<double>::quiet_NaN());
  x.select(0, 2).slice(0, 3, 4).fill_(std::numeric_limits<double>::infinity());
  const Tensor nan = is_nan(linear(x, int8_parameter(w)));
  EXPECT_FALSE(any(nan.slice(0, 0, 1)).item<bool>());
  EXPECT_TRUE(all(nan.slice(0, 1, 3)).item<bool>());
  const Tensor zero = linear(zeros({2, 70}), int8_parameter(w));
  EXPECT_TRUE(array_equal(zero, zeros({2, 5})));
}

TEST(Int8Embedding, LooksUpRows) {
  const Tensor w = int8_parameter(random({20, 12}, 2)),
               ids = tensor(std::vector<int64_t>{3, 0, 19, 3}, {2, 2});
  const Tensor rows = int8_rows(w, all_ids(w));
  EXPECT_TRUE(array_equal(embedding(ids, w, {.scale = 2}), embedding(ids, rows, {.scale = 2})));
  EXPECT_THROW(static_cast<void>(embedding(tensor(std::vector<int64_t>{20}, {1}), w)), IndexError);
}

TEST(Int8Weight, GivesTheLossOfItsLogits) {
  const NoGrad no_grad;
  const Tensor w = int8_parameter(random({20, 12}, 2)), x = random({3, 12}, 4),
               targets = tensor(std::vector<int64_t>{3, 0, 19}, {3});
  EXPECT_TRUE(array_equal(linear_cross_entropy(x, w, targets), cross_entropy(linear(x, w), targets)));
}

TEST(Int8Weight, RefusesWhatItIsNotFor) {
  const Tensor w = int8_parameter(random({20, 12}, 2)), x = random({3, 12}, 4);
  EXPECT_FALSE(w.requires_grad());
  expect_error<StateError>([&] { static_cast<void>(w + 1); }, {"8-bit integers"});
  expect_error<StateError>([&] { static_cast<void>(linear(x.detach().set_requires_grad(), w)); }, {"NoGrad"});
  expect_error<StateError>([&] { static_cast<void>(int8_rows(x, all_ids(x))); }, {"not kept as 8-bit"});
  expect_error<DTypeError>([&] { static_cast<void>(linear(x.to(DType::bf16), w)); }, {"bf16"});
  expect_error<ShapeError>([&] { static_cast<void>(linear(x.slice(1, 0, 5), w)); }, {"expected [out, 5]"});
  expect_error<StateError>([&] { keep_as_int8(zeros({2, 2}), zeros({2, 2})); }, {"no parameter"});
  const Tensor parameter = zeros({2, 2}).set_requires_grad();
  expect_error<ShapeError>([&] { keep_as_int8(parameter, zeros({2, 3})); }, {"2, 3"});
  expect_error<DTypeError>([&] { keep_as_int8(parameter, zeros({2, 2}, {DType::bf16, kCpu})); }, {"bf16"});
  EXPECT_FALSE(is_int8(parameter));
}

}  // namespace
}  // namespace heed
