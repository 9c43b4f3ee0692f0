// Values of another width, and the scores themselves.
#include <gtest/gtest.h>

#include "attention_reference.h"

namespace heed::test {
namespace {

using Lengths = std::vector<int32_t>;

Tensors one(const Tensor& x) { return {x}; }

Tensor reference_with_values(const AttentionCase& c, const Tensors& in, int64_t width) {
  const Tensor v = in[2].contiguous();
  const Tensor out = zeros({c.query_rows(), c.heads * width}, {.dtype = DType::f64});
  for (int64_t s = 0; s < c.segments.count(); ++s) {
    const Tensor weights = reference_weights(c, in, s);
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < weights.size(1); ++i)
        for (int64_t j = 0; j < weights.size(2); ++j)
          for (int64_t d = 0; d < width; ++d) {
            const int64_t key_head = h * c.kv_heads() / c.heads, row = c.segments.key_first(s) + j;
            out.data<double>()[((c.segments.query_first(s) + i) * c.heads + h) * width + d] +=
                weights.data<double>()[(h * weights.size(1) + i) * weights.size(2) + j] *
                v.data<double>()[(row * c.kv_heads() + key_head) * width + d];
          }
  }
  return out;
}

TEST(AttentionScores, ValuesOfAnotherWidth) {
  for (const int64_t width : {1, 3, 7, 16})
    for (const double cap : {0.0, 0.5}) {
      const AttentionCase c{.name = concat("v of ", width, " cap ", cap),
                            .segments = Segments::packed(Lengths{3, 1, 5}, Lengths{2, 4, 5}),
                            .heads = 4,
                            .key_heads = 2,
                            .logit_cap = cap};
      Tensors inputs = c.inputs();
      inputs[2] = normal({c.key_rows(), c.kv_heads() * width}, 3);
      check_op({.name = c.name,
                .inputs = inputs,
                .function =
                    [=](const Tensors& in) {
                      Generator generator(kAttentionSeed);
                      return one(attention(in[0], in[1], in[2], c.segments, c.options(in, generator)));
                    },
                .reference = [=](const Tensors& in) { return one(reference_with_values(c, in, width)); },
                .ulps = 8,
                .gradient_ulps = 8,
                .magnitude = 8});
    }
  // Dense operands keep their axes.
  const Tensor x = normal({2, 3, 4}, 1), v = normal({2, 3, 10}, 2);
  EXPECT_EQ(attention(x, x, v, Segments::dense(2, 3), {.heads = 2}).shape(), (Shape{2, 3, 10}));
}

TEST(AttentionScores, SoftmaxOfThemIsTheWeights) {
  const AttentionCase cases[] = {
      {.name = "plain", .segments = Segments::packed(Lengths{3, 1}, Lengths{2, 4})},
      {.name = "all biases",
       .segments = Segments::packed(Lengths{3, 4}, Lengths{5, 4}),
       .heads = 4,
       .key_heads = 2,
       .scale = 0.3,
       .logit_cap = 0.7,
       .visibility = {.causal = Causal::bottom_right},
       .bias = {4, 6, 6},
       .relative_limit = 1,
       .alibi = true},
      {.name = "masked",
       .segments = Segments::dense(2, 4),
       .visibility = {.window_left = 1},
       .mask = greater(uniform({4, 4}, 0, 1, 8), full({4, 4}, 0.3, {.dtype = DType::f64}))}};
  for (const AttentionCase& c : cases)
    for (const int64_t sequence : {0, 1}) {
      Tensors inputs = c.inputs();
      inputs.erase(inputs.begin() + 2);
      const auto with_v = [](const Tensors& in) { return Tensors{in[0], in[1], in[1], in[2], in[3]}; };
      check_op(
          {.name = concat(c.name, " sequence ", sequence),
           .inputs = inputs,
           .function =
               [=](const Tensors& in) {
                 Generator generator;
                 const AttentionOptions options = c.options(with_v(in), generator);
                 return one(softmax(attention_scores(in[0], in[1], c.segments, options, sequence)));
               },
           .reference = [=](const Tensors& in) { return one(reference_weights(c, with_v(in), sequence)); },
           .ulps = 8,
           .gradient_ulps = 8,
           .magnitude = 8});
    }
}

TEST(AttentionScores, NumbersByHand) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor q = tensor(std::vector<float>{1, 2}, {2, 1}, device),
                 k = tensor(std::vector<float>{3, -1, 4}, {3, 1}, device);
    const Segments segments = Segments::packed(Lengths{2}, Lengths{3});
    const Tensor y =
        attention_scores(q, k, segments, {.scale = 0.5, .visibility = {.causal = Causal::top_left}}, 0);
    EXPECT_EQ(y.shape(), (Shape{1, 2, 3}));
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1.5f, -HUGE_VALF, -HUGE_VALF, 3, -1, -HUGE_VALF}));
    const Tensor capped = attention_scores(q, k, segments, {.scale = 0.5, .logit_cap = 2}, 0);
    EXPECT_NEAR(capped.to_vector<float>()[5], 2 * std::tanh(2.0), 1e-6);
  }
}

TEST(AttentionScores, Errors) {
  const Tensor x = zeros({5, 8});
  const Segments segments = Segments::packed(Lengths{2, 3});
  expect_error<ConfigError>([&] { attention(x, x, x, segments, {.logit_cap = -1}); }, {"logit_cap is -1"});
  expect_error<IndexError>([&] { attention_scores(x, x, segments, {}, 2); },
                           {"there is no sequence 2 among 2"});
  expect_error<ShapeError>([&] { attention_scores(x, zeros({5, 4}), segments, {}, 0); }, {"k is [5, 4]"});
  expect_error<ShapeError>([&] { attention(x, x, zeros({4, 8}), segments, {}); }, {"v is [4, 8]"});
  expect_error<ShapeError>([&] { attention(x, x, zeros({5, 3}), segments, {.heads = 2}); }, {"v is [5, 3]"});
}

}  // namespace
}  // namespace heed::test
