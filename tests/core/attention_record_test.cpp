#include <gtest/gtest.h>

#include "op_check.h"
#include "ops/attention/attention_reference.h"

namespace heed::test {
namespace {

using Lengths = std::vector<int32_t>;

const Segments kPacked = Segments::packed(Lengths{3, 0, 5});

Tensor attend(const AttentionCase& c, const Tensors& in) {
  Generator generator(kAttentionSeed);
  AttentionOptions options = c.options(in, generator);
  options.name = c.name;
  return attention(in[0], in[1], in[2], c.segments, options);
}

Tensors converted(const Tensors& in, DType dtype, Device device = kCpu) {
  Tensors result;
  for (const Tensor& x : in) result.push_back(x.defined() ? x.to(dtype).to(device) : x);
  return result;
}

void expect_weights(const AttentionCase& c, DType dtype, Device device) {
  SCOPED_TRACE(concat(c.name, " ", dtype, " on ", device));
  const Tensors in = converted(c.inputs(), dtype), exact = converted(in, DType::f64);
  AttentionRecord record;
  attend(c, converted(in, dtype, device));
  // Scores of a few units: their rounding error is what moves the weights.
  const double tolerance = dtype == DType::f64 ? 1e-13 : 32 * 0x1p-23;
  for (int64_t s = 0; s < c.segments.count(); ++s) {
    const Tensor want = reference_weights(c, exact, s), all = record.weights(c.name, s);
    EXPECT_EQ(all.dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
    EXPECT_LE(max_difference(all.to(kCpu).to(DType::f64), want), tolerance);
    for (int64_t h = 0; h < c.heads; ++h) {
      const Tensor one = record.weights(c.name, s, h);
      EXPECT_EQ(one.shape(), (Shape{c.segments.query_length(s), c.segments.key_length(s)}));
      EXPECT_EQ(max_difference(one, all.select(0, h)), 0);
      const int64_t half = one.size(0) / 2;
      EXPECT_EQ(max_difference(record.weights(c.name, s, h, half, one.size(0) - half),
                               one.slice(0, half, one.size(0))),
                0);
    }
  }
}

TEST(AttentionRecord, RebuildsTheWeightsBeforeDropout) {
  for (const Device device : devices())
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      if (dtype == DType::f64 && !device.is_cpu()) continue;
      const auto expect = [&](const AttentionCase& c) { expect_weights(c, dtype, device); };
      expect({.name = "self", .segments = kPacked, .dropout = 0.5});
      expect({.name = "causal", .segments = kPacked, .visibility = {.causal = Causal::top_left}});
      expect({.name = "cross", .segments = Segments::packed(Lengths{2, 4}, Lengths{7, 3})});
      expect({.name = "grouped", .segments = kPacked, .heads = 4, .key_heads = 2});
      expect({.name = "biases", .segments = kPacked, .bias = {5, 5}, .relative_limit = 2, .alibi = true});
      expect({.name = "capped", .segments = kPacked, .logit_cap = 0.6, .bias = {5, 5}});
      expect({.name = "long", .segments = Segments::packed(Lengths{150}, Lengths{90})});
    }
}

TEST(AttentionRecord, RowsSumToOneInTrainingToo) {
  const AttentionCase c{.name = "a", .segments = Segments::dense(2, 4, 4, Lengths{3, 0}), .dropout = 0.9};
  const Tensors in = converted(c.inputs(), DType::f32);
  for (size_t i = 0; i < 3; ++i) in[i].set_requires_grad();
  AttentionRecord record;
  attend(c, in);
  for (float total : sum(record.weights("a", 0), {.axes = {-1}}).to_vector<float>())
    EXPECT_NEAR(total, 1, 1e-6);
  EXPECT_EQ(record.weights("a", 1).shape(), (Shape{2, 4, 0}));
}

// ---- gradients: inputs are q, k, bias and relative

Tensors all_weights(const AttentionCase& c, const Tensors& in) {
  const Tensor v = ones({c.key_rows(), c.kv_heads() * c.width}, in[0].options());
  AttentionRecord record;
  attend(c, {in[0], in[1], v, in[2], in[3]});
  Tensors result;
  for (int64_t s = 0; s < c.segments.count(); ++s) {
    result.push_back(record.weights(c.name, s));
    result.push_back(record.weights(c.name, s, c.heads - 1));
    const int64_t half = c.segments.query_length(s) / 2;
    result.push_back(record.weights(c.name, s, 0, half, c.segments.query_length(s) - half));
  }
  return result;
}

void check_gradients_of_weights(const AttentionCase& c) {
  const Tensors in = c.inputs();
  check_op({.name = c.name,
            .inputs = {in[0], in[1], in[3], in[4]},
            .function = [&](const Tensors& in) { return all_weights(c, in); },
            .reference =
                [&](const Tensors& in) {
                  Tensors result;
                  for (int64_t s = 0; s < c.segments.count(); ++s) {
                    const Tensor all = reference_weights(c, {in[0], in[1], {}, in[2], in[3]}, s);
                    result.push_back(all);
                    result.push_back(all.select(0, c.heads - 1));
                    result.push_back(all.select(0, 0).slice(0, all.size(1) / 2, all.size(1)));
                  }
                  return result;
                },
            .ulps = 16,
            .gradient_ulps = 16,
            .magnitude = 1});
}

TEST(AttentionRecord, WeightsHaveGradients) {
  check_gradients_of_weights({.name = "self", .segments = kPacked, .dropout = 0.5});
  check_gradients_of_weights(
      {.name = "causal", .segments = kPacked, .scale = 0.3, .visibility = {.causal = Causal::top_left}});
  check_gradients_of_weights({.name = "cross", .segments = Segments::packed(Lengths{2, 4}, Lengths{7, 3})});
  check_gradients_of_weights({.name = "grouped", .segments = kPacked, .heads = 4, .key_heads = 2});
  check_gradients_of_weights({.name = "dense", .segments = Segments::dense(2, 4, 4, Lengths{3, 0})});
  check_gradients_of_weights(
      {.name = "biases", .segments = kPacked, .bias = {6, 5}, .relative_limit = 2, .alibi = true});
  check_gradients_of_weights({.name = "capped", .segments = kPacked, .logit_cap = 0.6, .bias = {5, 5}});
  check_gradients_of_weights({.name = "bias of heads", .segments = kPacked, .bias = {3, 2, 1, 5}});
  check_gradients_of_weights({.name = "aligned at the end",
                              .segments = Segments::packed(Lengths{2, 4}, Lengths{7, 5}),
                              .visibility = {.causal = Causal::bottom_right, .window_left = 3},
                              .relative_limit = 2});
}

TEST(AttentionRecord, FusedLayoutsHaveGradientsToo) {
  const AttentionCase c{.name = "", .segments = kPacked};
  const Tensors in = c.inputs();
  const Tensor separate = in[0].clone().set_requires_grad(),
               qkv = cat({in[0], in[1], in[2]}, 1).set_requires_grad(), q = in[0].clone().set_requires_grad(),
               kv = cat({in[1], in[2]}, 1).set_requires_grad(), k = in[1].clone().set_requires_grad();
  AttentionRecord record;
  attention(separate, k, in[2], kPacked, {.heads = 2, .name = "separate"});
  attention_qkv(qkv, kPacked, {.heads = 2, .name = "qkv"});
  attention_kv(q, kv, kPacked, {.heads = 2, .name = "kv"});
  for (const std::string& name : record.names()) sum(square(record.weights(name, 2))).backward();
  const int64_t width = in[0].size(1);
  EXPECT_GT(max_abs(separate.grad()), 0.001);
  EXPECT_LE(max_difference(q.grad(), separate.grad()), 1e-14);
  EXPECT_LE(max_difference(qkv.grad(), cat({separate.grad(), k.grad(), zeros_like(in[2])}, 1)), 1e-14);
  EXPECT_LE(max_difference(kv.grad().slice(1, 0, width), k.grad()), 1e-14);
}

TEST(AttentionRecord, ALossOfWeightsTrainsBesideTheOutputs) {
  const AttentionCase c{.name = "a", .segments = kPacked};
  const auto gradient = [&](double factor) {
    Tensors in = c.inputs();
    in[0].set_requires_grad();
    AttentionRecord record;
    Tensor loss = sum(attend(c, in));
    if (factor != 0) {
      const Tensor weights = record.weights("a", 2);
      loss += factor * sum(weights * log(weights));  // less of their entropy
    }
    loss.backward();
    return in[0].grad();
  };
  const Tensor plain = gradient(0), once = gradient(1) - plain, twice = gradient(2) - plain;
  EXPECT_GT(max_abs(once), 0.01);
  EXPECT_LE(max_difference(twice, once * 2.0), 1e-12);
  {
    const NoGrad no_grad;
    EXPECT_FALSE(
        all_weights(c, {c.inputs()[0].set_requires_grad(), c.inputs()[1], {}, {}})[0].requires_grad());
  }
  AttentionRecord record;
  const Tensors in = c.inputs();
  in[1].set_requires_grad();
  attend(c, in);
  const Tensor weights = record.weights("a", 0);
  in[0].detach().fill_(0);
  expect_error<AutogradError>([&] { sum(weights).backward(); }, "was changed in place");
}

TEST(AttentionRecord, FusedLayoutsGiveTheSameWeights) {
  const AttentionCase c{.name = "", .segments = kPacked};
  const Tensors in = c.inputs();
  AttentionRecord record;
  attention(in[0], in[1], in[2], kPacked, {.heads = 2, .name = "separate"});
  attention_qkv(cat({in[0], in[1], in[2]}, 1), kPacked, {.heads = 2, .name = "qkv"});
  attention_kv(in[0], cat({in[1], in[2]}, 1), kPacked, {.heads = 2, .name = "kv"});
  EXPECT_EQ(record.names(), (std::vector<std::string>{"separate", "qkv", "kv"}));
  for (const char* name : {"qkv", "kv"})
    EXPECT_EQ(max_difference(record.weights(name, 2), record.weights("separate", 2)), 0);
  EXPECT_EQ(record.heads("qkv"), 2);
  EXPECT_EQ(record.sequences("kv"), 3);
}

TEST(AttentionRecord, WorksWithoutAGraphAndKeepsTheLatestOfAName) {
  const AttentionCase first{.name = "a", .segments = kPacked},
      second{.name = "a", .segments = Segments::dense(1, 2)};
  const NoGrad no_grad;
  AttentionRecord record;
  attend(first, first.inputs());
  attend(second, second.inputs());
  EXPECT_EQ(record.names(), std::vector<std::string>{"a"});
  EXPECT_EQ(record.sequences("a"), 1);
  EXPECT_LE(max_difference(record.weights("a", 0), reference_weights(second, second.inputs(), 0)), 1e-13);
}

TEST(AttentionRecord, TheInnermostRecords) {
  const AttentionCase c{.name = "a", .segments = kPacked};
  AttentionRecord outer;
  {
    AttentionRecord inner;
    attend(c, c.inputs());
    EXPECT_EQ(inner.names().size(), 1u);
  }
  EXPECT_TRUE(outer.names().empty());
  attend(c, c.inputs());
  EXPECT_EQ(outer.names().size(), 1u);
}

TEST(AttentionRecord, OutlivesItsInputs) {
  const AttentionCase c{.name = "a", .segments = kPacked};
  AttentionRecord record;
  Tensor want;
  {
    const Tensors in = c.inputs();
    want = reference_weights(c, in, 2);
    attend(c, in);
  }
  EXPECT_LE(max_difference(record.weights("a", 2), want), 1e-13);
}

TEST(AttentionRecord, NoticesChangedInputs) {
  const AttentionCase c{.name = "a", .segments = kPacked, .bias = {5, 5}, .relative_limit = 2};
  for (size_t i : {0u, 1u, 3u, 4u}) {
    const Tensors in = c.inputs();
    AttentionRecord record;
    attend(c, in);
    in[i].fill_(0.5);
    expect_error<StateError>([&] { record.weights("a", 0); },
                             "an input of \"a\" was written to since the call");
  }
}

TEST(AttentionRecord, Errors) {
  AttentionRecord record;
  expect_error<IndexError>([&] { record.weights("a", 0); }, "no call is named \"a\"; none was recorded");
  const AttentionCase c{.name = "encoder", .segments = kPacked};
  attend(c, c.inputs());
  expect_error<IndexError>([&] { record.heads("decoder"); },
                           "no call is named \"decoder\"; there are \"encoder\"");
  expect_error<IndexError>([&] { record.weights("encoder", 3); },
                           "attention record: \"encoder\" has 3 sequences; there is no sequence 3");
  expect_error<IndexError>([&] { record.weights("encoder", -1, 0); }, "there is no sequence -1");
  expect_error<IndexError>([&] { record.weights("encoder", 0, 2); },
                           "attention record: \"encoder\" has 2 heads; there is no head 2");
}

}  // namespace
}  // namespace heed::test
