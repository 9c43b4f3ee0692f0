#include <gtest/gtest.h>

#include "op_check.h"
#include "ops/attention_reference.h"

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
  EXPECT_FALSE(record.weights("a", 0).requires_grad());
  EXPECT_EQ(record.weights("a", 1).shape(), (Shape{2, 4, 0}));
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
