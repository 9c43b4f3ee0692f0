#include <gtest/gtest.h>

#include <heed/core/additive_attention.h>
#include <heed/core/attention.h>
#include <heed/core/ops.h>

#include "../fused_check.h"
#include "expect_error.h"

namespace heed::test {
namespace {

struct Case {
  std::vector<int32_t> queries, keys;
  int64_t width = 5, columns = 3;
  int64_t gap = 0;  // rows after all, of no sequence
};

int64_t total(const std::vector<int32_t>& lengths) {
  int64_t sum = 0;
  for (int32_t length : lengths) sum += length;
  return sum;
}

// Sequence by sequence, by definition.
Tensor composed(const Tensors& in, const Case& c) {
  const Segments segments = Segments::packed(c.queries, c.keys);
  std::vector<Tensor> results;
  for (int64_t i = 0; i < segments.count(); ++i) {
    const int64_t first = segments.query_first(i), key = segments.key_first(i);
    const Tensor q = in[0].slice(0, first, first + segments.query_length(i)),
                 k = in[1].slice(0, key, key + segments.key_length(i)),
                 values = in[3].slice(0, key, key + segments.key_length(i));
    if (segments.query_length(i) == 0) continue;
    if (segments.key_length(i) == 0) {
      results.push_back(zeros({q.size(0), c.columns}, q.options()));
      continue;
    }
    const Tensor scores = sum(tanh(q.unsqueeze(1) + k.unsqueeze(0)) * in[2], {.axes = {-1}});
    results.push_back(matmul(softmax(scores), values));
  }
  results.push_back(zeros({c.gap, c.columns}, in[0].options()));
  return cat(results, 0);
}

void check(const Case& c) {
  check_fused({.name = concat("additive attention of ", c.queries.size(), " sequences"),
               .inputs = {normal({total(c.queries) + c.gap, c.width}, 1), normal({total(c.keys), c.width}, 2),
                          normal({c.width}, 3), normal({total(c.keys), c.columns}, 4)},
               .function =
                   [=](const Tensors& in) {
                     return Tensors{
                         additive_attention(in[0], in[1], in[2], in[3], Segments::packed(c.queries, c.keys))};
                   },
               .reference = [=](const Tensors& in) { return Tensors{composed(in, c)}; },
               .plain = [=](const Tensors& in) { return Tensors{composed(in, c)}; },
               .magnitude = 8});  // of the sums before the softmax
}

TEST(AdditiveAttention, EqualsItsDefinition) { check({.queries = {2, 4, 1}, .keys = {3, 2, 5}}); }
TEST(AdditiveAttention, EmptySequencesAndRowsOfNone) {
  check({.queries = {2, 0, 3}, .keys = {3, 2, 0}, .gap = 2});
}
// More than what is computed at once.
TEST(AdditiveAttention, InSeveralParts) {
  const Case c{.queries = {40, 50, 30}, .keys = {45, 50, 20}, .width = 300, .columns = 2};
  const auto gradients = [&](bool fused) {
    const Tensors in{normal({120, c.width}, 1).set_requires_grad(),
                     normal({115, c.width}, 2).set_requires_grad(), normal({c.width}, 3).set_requires_grad(),
                     normal({115, c.columns}, 4).set_requires_grad()};
    const Tensor y = fused
                         ? additive_attention(in[0], in[1], in[2], in[3], Segments::packed(c.queries, c.keys))
                         : composed(in, c);
    sum(y * normal({120, c.columns}, 5)).backward();
    return Tensors{y, in[0].grad(), in[1].grad(), in[2].grad(), in[3].grad()};
  };
  const Tensors got = gradients(true), want = gradients(false);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(max_difference(got[i], want[i]), 1e-12) << i;
}

TEST(AdditiveAttention, RecordsItsWeights) {
  const Case c{.queries = {2, 3}, .keys = {3, 2}};
  const Tensor q = normal({5, 4}, 1), k = normal({5, 4}, 2), score = normal({4}, 3),
               values = normal({5, 3}, 4);
  const AttentionRecord record;
  const Tensor y = additive_attention(q, k, score, values, Segments::packed(c.queries, c.keys), "which");
  EXPECT_EQ(record.names(), std::vector<std::string>{"which"});
  EXPECT_EQ(record.heads("which"), 1);
  EXPECT_EQ(record.sequences("which"), 2);
  EXPECT_EQ(record.fully_masked_rows("which"), 0);
  const Tensor weights = record.weights("which", 1, 0);
  ASSERT_EQ(weights.shape(), (Shape{3, 2}));
  EXPECT_LE(max_difference(matmul(weights, values.slice(0, 3, 5)), y.slice(0, 2, 5)), 1e-14);
  EXPECT_LE(max_difference(sum(weights, {.axes = {1}}), ones({3}, {.dtype = DType::f64})), 1e-14);
  EXPECT_EQ(record.weights("which", 0, 0, 1, 1).shape(), (Shape{1, 3}));
}

TEST(AdditiveAttention, Errors) {
  const Segments segments = Segments::packed(std::vector<int32_t>{2}, std::vector<int32_t>{3});
  const auto refused = [&](const Shape& q, const Shape& k, const Shape& score, const Shape& values) {
    expect_error<ShapeError>(
        [&] { (void)additive_attention(zeros(q), zeros(k), zeros(score), zeros(values), segments); },
        {"additive_attention: "});
  };
  refused({2, 4}, {3, 5}, {4}, {3, 2});
  refused({2, 4}, {3, 4}, {5}, {3, 2});
  refused({2, 4}, {3, 4}, {4}, {2, 2});
  refused({1, 4}, {3, 4}, {4}, {3, 2});
  refused({2, 4}, {2, 4}, {4}, {2, 2});
  const Segments shared({0, 1}, {1, 1}, {0, 0}, {2, 2});
  const Tensor q = zeros({2, 4}).set_requires_grad();
  expect_error<StateError>(
      [&] {
        (void)additive_attention(q, zeros({2, 4}), zeros({4}), zeros({2, 3}), shared);
      },
      {"several sequences share keys"});
  const NoGrad no_grad;
  EXPECT_EQ(additive_attention(q, zeros({2, 4}), zeros({4}), ones({2, 3}), shared).to_vector<float>(),
            std::vector<float>(6, 1.0f));
}

}  // namespace
}  // namespace heed::test
