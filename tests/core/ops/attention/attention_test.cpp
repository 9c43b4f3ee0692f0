#include <gtest/gtest.h>

#include "attention_reference.h"

namespace heed::test {
namespace {

using Lengths = std::vector<int32_t>;

enum class Layout { separate, qkv, kv };

// Operands laid out as `layout` has them: the first of the inputs is q or qkv, the second k or kv.
Tensors joined(const Tensors& in, Layout layout) {
  if (layout == Layout::qkv) return {cat({in[0], in[1], in[2]}, 1), {}, {}, in[3], in[4]};
  if (layout == Layout::kv) return {in[0], cat({in[1], in[2]}, 1), {}, in[3], in[4]};
  return in;
}

Tensors taken_apart(const Tensors& in, Layout layout, const AttentionCase& c) {
  const int64_t q = c.heads * c.width, k = c.kv_heads() * c.width;
  if (layout == Layout::qkv)
    return {in[0].slice(1, 0, q), in[0].slice(1, q, q + k), in[0].slice(1, q + k, q + 2 * k), in[3], in[4]};
  if (layout == Layout::kv) return {in[0], in[1].slice(1, 0, k), in[1].slice(1, k, 2 * k), in[3], in[4]};
  return in;
}

Tensor attend(const AttentionCase& c, const Tensors& in, Layout layout = Layout::separate) {
  Generator generator(kAttentionSeed);
  const AttentionOptions options = c.options(in, generator);
  if (layout == Layout::qkv) return attention_qkv(in[0], c.segments, options);
  if (layout == Layout::kv) return attention_kv(in[0], in[1], c.segments, options);
  return attention(in[0], in[1], in[2], c.segments, options);
}

void check(const AttentionCase& c, Layout layout = Layout::separate) {
  const Tensors inputs = c.inputs();
  // Gradients of scores are differences of products like this one, and may cancel.
  const double product = c.factor() * max_abs(inputs[2]) * std::max(max_abs(inputs[0]), max_abs(inputs[1]));
  check_fused(
      {.name = concat("attention ", c.name, " layout ", static_cast<int>(layout)),
       .inputs = joined(inputs, layout),
       .function = [=](const Tensors& in) { return Tensors{attend(c, in, layout)}; },
       .reference =
           [=](const Tensors& in) { return Tensors{reference_attention(c, taken_apart(in, layout, c))}; },
       .plain = [=](const Tensors& in) { return Tensors{composed_attention(c, taken_apart(in, layout, c))}; },
       .magnitude = product});
}

Tensor random_mask(const Shape& shape) {
  return greater(uniform(shape, 0, 1, 8), full(shape, 0.4, {.dtype = DType::f64}));
}

const Segments kPacked = Segments::packed(Lengths{3, 1, 5});
const Segments kCross = Segments::packed(Lengths{2, 4}, Lengths{5, 3});

TEST(Attention, Layouts) {
  for (Layout layout : {Layout::separate, Layout::qkv, Layout::kv}) {
    check({.name = "packed", .segments = kPacked}, layout);
    check({.name = "dense", .segments = Segments::dense(2, 4)}, layout);
    check({.name = "spare rows", .segments = kPacked, .spare_rows = 3}, layout);
    check({.name = "padded", .segments = Segments::dense(3, 4, Lengths{2, 4, 0})}, layout);
    check({.name = "grouped", .segments = kPacked, .heads = 4, .key_heads = 2, .width = 3}, layout);
    check({.name = "causal dropout",
           .segments = kPacked,
           .visibility = {.causal = Causal::top_left},
           .dropout = 0.5},
          layout);
  }
}

TEST(Attention, DenseWithKeyLengths) {
  check({.name = "key lengths", .segments = Segments::dense(2, 3, 5, Lengths{2, 5})});
  check({.name = "a sequence without keys", .segments = Segments::dense(2, 3, 5, Lengths{0, 4})});
  check({.name = "key lengths", .segments = Segments::dense(2, 3, 5, Lengths{2, 5})}, Layout::kv);
}

TEST(Attention, CrossWithUnequalLengths) {
  for (Layout layout : {Layout::separate, Layout::kv})
    for (Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right})
      check({.name = concat("cross causal ", static_cast<int>(causal)),
             .segments = kCross,
             .visibility = {.causal = causal}},
            layout);
}

TEST(Attention, ShapesThatFillNoTile) {
  check({.name = "one of all", .segments = Segments::packed(Lengths{1}), .heads = 1, .width = 1});
  check({.name = "width 7", .segments = kPacked, .heads = 3, .width = 7});
  check({.name = "width 33", .segments = kCross, .heads = 1, .width = 33});
  check({.name = "one query", .segments = Segments::packed(Lengths{1}, Lengths{37}), .heads = 1});
  check({.name = "33 x 70", .segments = Segments::packed(Lengths{33}, Lengths{70}), .heads = 1, .width = 5});
  check({.name = "scale", .segments = kPacked, .scale = 0.7});
}

// Widths and lengths for which the CUDA kernels hold tiles of bf16.
TEST(Attention, ShapesThatFillTiles) {
  for (int64_t width : {16, 32, 64, 128})
    check(
        {.name = concat("width ", width), .segments = Segments::packed(Lengths{17, 1, 16}), .width = width});
  for (Layout layout : {Layout::separate, Layout::qkv, Layout::kv})
    check({.name = "mask, causal, dropout",
           .segments = Segments::dense(2, 33, Lengths{33, 9}),
           .heads = 4,
           .key_heads = 2,
           .width = 16,
           .visibility = {.causal = Causal::top_left},
           .mask = random_mask({33, 33}),
           .dropout = 0.25},
          layout);
  check({.name = "longer than a block holds",
         .segments = Segments::packed(Lengths{3, 130}, Lengths{129, 5}),
         .heads = 2,
         .key_heads = 1,
         .width = 16,
         .bias = {130, 129},
         .dropout = 0.25});
}

TEST(Attention, KeyHeads) {
  check({.name = "one key head", .segments = kPacked, .heads = 3, .key_heads = 1});
  check({.name = "two for six", .segments = kCross, .heads = 6, .key_heads = 2, .width = 2}, Layout::kv);
}

TEST(Attention, Rules) {
  const Segments nine = Segments::packed(Lengths{9, 4}),
                 cross = Segments::packed(Lengths{4, 9}, Lengths{9, 6});
  const Visibility rules[] = {
      {.causal = Causal::top_left},
      {.causal = Causal::bottom_right},
      {.window_left = 2, .window_right = 1},
      {.window_left = 0, .window_right = 0},
      {.causal = Causal::top_left, .window_left = 3},
      {.causal = Causal::bottom_right, .window_left = 1},
      {.window_left = 4, .window_right = 4, .dilation = 2},
      {.window_right = 2, .global_tokens = 1},
      {.window_left = 1, .window_right = 1, .global_tokens = 2},
      {.causal = Causal::top_left, .window_left = 4, .dilation = 3, .global_tokens = 1},
      {.dilation = 3},
      {.causal = Causal::none_bottom_right, .window_left = 2, .window_right = 1},
      {.causal = Causal::none_bottom_right, .window_left = 1, .window_right = 0, .global_tokens = 1},
      {.causal = Causal::bottom_right, .window_left = 1, .global_tokens = 6},
      {.causal = Causal::none_bottom_right, .window_left = 0, .window_right = 0, .global_tokens = 6},
  };
  int number = 0;
  for (const Visibility& rule : rules) {
    check({.name = concat("rule ", number, " self"), .segments = nine, .heads = 1, .visibility = rule});
    check({.name = concat("rule ", number++, " cross"), .segments = cross, .heads = 1, .visibility = rule});
  }
}

// Three by three blocks of 64.
Tensor some_blocks(const std::vector<int64_t>& seen) { return tensor(seen, {3, 3}).to(DType::boolean); }

TEST(Attention, PatternsOfBlocks) {
  const Tensor blocks = some_blocks({1, 0, 1, 0, 1, 0, 1, 1, 0});
  const Segments self = Segments::packed(Lengths{135, 0, 9});
  check({.name = "pattern, causal, dropout",
         .segments = self,
         .key_heads = 1,
         .width = 16,
         .visibility = {.causal = Causal::top_left},
         .blocks = blocks,
         .dropout = 0.25,
         .spare_rows = 3},
        Layout::qkv);
  check({.name = "pattern, window, global tokens, capped, biases",
         .segments = self,
         .heads = 1,
         .width = 2,
         .logit_cap = 0.7,
         .visibility = {.window_left = 40, .window_right = 20, .dilation = 3, .global_tokens = 2},
         .blocks = blocks,
         .relative_limit = 3,
         .alibi = true});
  for (const Causal causal : {Causal::top_left, Causal::bottom_right, Causal::none_bottom_right})
    check({.name = concat("pattern over a cache ", static_cast<int>(causal)),
           .segments = Segments::packed(Lengths{1, 20, 70}, Lengths{130, 80, 20}),
           .heads = 1,
           .width = 2,
           .visibility = {.causal = causal},
           .blocks = blocks},
          Layout::kv);
  check({.name = "nothing is seen",
         .segments = Segments::packed(Lengths{70}),
         .heads = 1,
         .blocks = some_blocks({0, 0, 0, 0, 0, 0, 0, 0, 1})});
}

TEST(Attention, CappedScores) {
  for (Layout layout : {Layout::separate, Layout::qkv, Layout::kv})
    check({.name = "capped", .segments = kPacked, .heads = 4, .key_heads = 2, .logit_cap = 0.4}, layout);
  check({.name = "capped, biased",
         .segments = kCross,
         .logit_cap = 0.4,
         .visibility = {.causal = Causal::bottom_right},
         .bias = {1, 2, 6, 8},
         .relative_limit = 2,
         .alibi = true,
         .spare_rows = 2});
  check({.name = "capped, masked",
         .segments = Segments::dense(3, 4, Lengths{2, 4, 1}),
         .logit_cap = 2,
         .mask = random_mask({3, 1, 4, 4})});
  check({.name = "capped, longer than a block, with dropout",
         .segments = Segments::packed(Lengths{70, 3}),
         .width = 16,
         .logit_cap = 0.7,
         .visibility = {.causal = Causal::top_left},
         .dropout = 0.25});
}

TEST(Attention, CapsTowardsTheNumberGiven) {
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      if (device.is_cuda() && dtype == DType::f64) continue;
      // Scores of 6 and 0 are capped to 2 tanh 3 and 0.
      const Tensor q = ones({1, 1}, {.dtype = dtype, .device = device}),
                   k = tensor(std::vector<float>{6, 0}, {2, 1}, device).to(dtype),
                   v = tensor(std::vector<float>{1, 0}, {2, 1}, device).to(dtype);
      const Tensor y = attention(q, k, v, Segments::packed(Lengths{1}, Lengths{2}), {.logit_cap = 2});
      EXPECT_NEAR(y.item<double>(), 1 / (1 + std::exp(-2 * std::tanh(3.0))),
                  dtype == DType::bf16 ? 4e-3 : 1e-6);
    }
}

// The last queries of a sequence, whose earlier keys come from a cache, see in a window what they see as part
// of the whole sequence.
TEST(Attention, WindowsOverACache) {
  const int64_t length = 40, fresh = 7;
  for (const Device device : devices())
    for (const auto& [left, right] : {std::pair(3, 2), std::pair(0, 4), std::pair(9, -1), std::pair(-1, 0)}) {
      const auto part = [&](uint64_t seed) { return normal({length, 8}, seed).to(DType::f32).to(device); };
      const Tensor q = part(1), k = part(2), v = part(3);
      const Tensor slopes = tensor(std::vector<float>{0.25f, 0.5f}, {2}, device);
      const Tensor whole = attention(
          q, k, v, Segments::packed(Lengths{length}),
          {.heads = 2, .visibility = {.window_left = left, .window_right = right}, .alibi_slopes = slopes});
      const Tensor last = attention(
          q.slice(0, length - fresh, length), k, v, Segments::packed(Lengths{fresh}, Lengths{length}),
          {.heads = 2,
           .visibility = {.causal = Causal::none_bottom_right, .window_left = left, .window_right = right},
           .alibi_slopes = slopes});
      EXPECT_LT(max_difference(last, whole.slice(0, length - fresh, length)), 1e-6) << left << " " << right;
    }
}

// A causal text in pieces, each after the keys of those before it: rows of the whole, whatever rule and
// pattern.
TEST(Attention, PiecesAfterACacheAreRowsOfTheWhole) {
  constexpr int32_t kLength = 150;
  const Visibility rules[] = {
      {.window_left = 20, .global_tokens = 3},
      {.window_left = 0, .global_tokens = 70},
      {.window_left = 40, .dilation = 3, .global_tokens = 5},
      {.window_left = 9},
  };
  const BlockPattern patterns[] = {{}, BlockPattern(some_blocks({1, 0, 0, 1, 1, 0, 0, 1, 1}))};
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto part = [&](uint64_t seed) { return normal({kLength, 32}, seed).to(dtype).to(device); };
      const Tensor q = part(1), k = part(2), v = part(3);
      for (const Visibility& rule : rules)
        for (const BlockPattern& blocks : patterns) {
          AttentionOptions options{.heads = 2, .visibility = rule, .blocks = blocks};
          options.visibility.causal = Causal::top_left;
          const Tensor whole = attention(q, k, v, Segments::packed(Lengths{kLength}), options);
          options.visibility.causal = Causal::bottom_right;
          Tensors pieces;
          int32_t first = 0;
          for (const int32_t end : {2, 4, 5, 75, 76, kLength}) {
            pieces.push_back(attention(q.slice(0, first, end), k.slice(0, 0, end), v.slice(0, 0, end),
                                       Segments::packed(Lengths{end - first}, Lengths{end}), options));
            first = end;
          }
          EXPECT_LT(max_difference(cat(pieces, 0), whole), dtype == DType::f32 ? 1e-5 : 0.05)
              << device << ' ' << dtype << ' ' << rule.global_tokens << ' ' << blocks.defined();
        }
    }
}

TEST(Attention, BooleanMasks) {
  for (const Shape& shape : {Shape{3, 2, 5, 5}, Shape{3, 1, 1, 5}, Shape{5, 5}, Shape{2, 1, 5}, Shape{5},
                             Shape{1, 1, 5, 1}, Shape{3, 1, 7, 9}})
    check({.name = concat("mask ", shape), .segments = kPacked, .mask = random_mask(shape)});
  check({.name = "mask and causal",
         .segments = kPacked,
         .visibility = {.causal = Causal::top_left},
         .mask = random_mask({5, 5}),
         .dropout = 0.25});
}

TEST(Attention, BiasesWithGradients) {
  for (const Shape& shape : {Shape{3, 2, 5, 5}, Shape{3, 1, 1, 5}, Shape{5, 5}, Shape{2, 1, 5}, Shape{1},
                             Shape{2, 5, 1}, Shape{1, 2, 6, 8}})
    check({.name = concat("bias ", shape), .segments = kPacked, .bias = shape});
  check({.name = "bias cross",
         .segments = kCross,
         .visibility = {.causal = Causal::bottom_right},
         .bias = {2, 4, 5}});
  check({.name = "bias grouped dropout",
         .segments = kPacked,
         .heads = 4,
         .key_heads = 2,
         .bias = {4, 5, 5},
         .dropout = 0.5},
        Layout::qkv);
}

TEST(Attention, AlibiAndRelativeTables) {
  check({.name = "alibi", .segments = kPacked, .alibi = true});
  check({.name = "alibi cross",
         .segments = kCross,
         .visibility = {.causal = Causal::bottom_right},
         .alibi = true});
  for (int64_t limit : {0, 2, 6}) {
    check({.name = concat("relative ", limit), .segments = kPacked, .relative_limit = limit});
    check({.name = concat("relative cross ", limit),
           .segments = kCross,
           .visibility = {.causal = Causal::bottom_right},
           .relative_limit = limit});
  }
  check({.name = "all at once",
         .segments = kPacked,
         .heads = 4,
         .key_heads = 2,
         .visibility = {.causal = Causal::top_left, .window_left = 3},
         .bias = {4, 5, 5},
         .relative_limit = 2,
         .alibi = true,
         .dropout = 0.25},
        Layout::qkv);
}

TEST(Attention, DropoutDoesNotDependOnPacking) {
  for (double p : {0.1, 0.5}) {
    check({.name = concat("dropout ", p), .segments = kPacked, .dropout = p});
    check({.name = concat("dropout cross ", p), .segments = kCross, .dropout = p}, Layout::kv);
  }
  const AttentionCase padded{.name = "", .segments = Segments::dense(2, 4, Lengths{3, 2}), .dropout = 0.5};
  const AttentionCase packed{.name = "", .segments = Segments::packed(Lengths{3, 2}), .dropout = 0.5};
  const Tensors in = padded.inputs();
  Tensors rows(5);
  for (size_t i = 0; i < 3; ++i) rows[i] = cat({in[i].slice(0, 0, 3), in[i].slice(0, 4, 6)}, 0);
  const Tensor want = attend(packed, rows), got = attend(padded, in);
  EXPECT_EQ(max_difference(cat({got.slice(0, 0, 3), got.slice(0, 4, 6)}, 0), want), 0);
}

TEST(Attention, RowsThatSeeNothingAreZeroWithZeroGradient) {
  const Tensor mask = full({3, 1, 5, 5}, 1, {.dtype = DType::boolean});
  mask.select(0, 2).select(1, 1).fill_(0);  // query 1 of the last sequence
  mask.select(0, 1).fill_(0);               // all of the second
  const AttentionCase c{.name = "hidden rows", .segments = kPacked, .mask = mask};
  check(c);
  check(c, Layout::qkv);
  const Tensors in = c.inputs();
  for (size_t i = 0; i < 3; ++i) in[i].set_requires_grad();
  const Tensor out = attend(c, in);
  out.backward(normal(out.shape(), 9));
  for (int64_t row : {3, 5}) {
    EXPECT_EQ(max_abs(out.select(0, row)), 0);
    EXPECT_EQ(max_abs(in[0].grad().select(0, row)), 0);
  }
  EXPECT_EQ(max_abs(in[1].grad().select(0, 3)), 0);
  EXPECT_EQ(max_abs(in[2].grad().select(0, 3)), 0);
}

TEST(Attention, EmptySequencesAndBatches) {
  check({.name = "empty between", .segments = Segments::packed(Lengths{2, 0, 3})});
  check({.name = "no queries", .segments = Segments::packed(Lengths{0, 2}, Lengths{3, 2})});
  check({.name = "no keys", .segments = Segments::packed(Lengths{2, 2}, Lengths{0, 3})});
  const AttentionCase nothing{.name = "nothing", .segments = Segments()};
  EXPECT_EQ(attend(nothing, nothing.inputs()).shape(), (Shape{0, 8}));
  const AttentionCase gaps{.name = "only gaps", .segments = Segments(), .spare_rows = 3};
  const Tensors in = gaps.inputs();
  for (size_t i = 0; i < 3; ++i) in[i].set_requires_grad();
  const Tensor out = attend(gaps, in);
  EXPECT_EQ(max_abs(out), 0);
  out.backward(ones(out.shape(), out.options()));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(max_abs(in[i].grad()), 0);
}

// What is hidden, in a gap or in another segment's padding may hold anything.
TEST(Attention, NaNInWhatIsNotVisibleGoesNowhere) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const AttentionCase c{.name = "", .segments = Segments::dense(2, 4, 4, Lengths{2, 3}), .spare_rows = 1};
    Tensors in = c.inputs(), poisoned;
    for (size_t i = 0; i < 5; ++i) {
      if (in[i].defined()) in[i] = in[i].to(dtype);
      poisoned.push_back(in[i].defined() ? in[i].clone() : Tensor());
    }
    for (int64_t row : {2, 3, 7})
      for (size_t i : {1u, 2u}) poisoned[i].select(0, row).fill_(row == 3 ? INFINITY : NAN);
    poisoned[0].slice(0, 8, 9).fill_(NAN);
    for (size_t i = 0; i < 3; ++i) {
      in[i].set_requires_grad();
      poisoned[i].set_requires_grad();
    }
    const Tensor want = attend(c, in), got = attend(c, poisoned);
    EXPECT_EQ(max_difference(got, want), 0) << dtype;
    const Tensor seed = normal(want.shape(), 9).to(dtype);
    want.backward(seed);
    got.backward(seed);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(max_difference(poisoned[i].grad(), in[i].grad()), 0) << dtype << i;
  }
}

TEST(Attention, NaNBehindAMaskGoesNowhere) {
  for (const double cap : {0.0, 1.5}) {
    const Tensor mask = full({4}, 1, {.dtype = DType::boolean});
    mask.slice(0, 2, 3).fill_(0);
    const AttentionCase c{.name = "", .segments = Segments::dense(1, 4), .logit_cap = cap, .mask = mask};
    const Tensors in = c.inputs();
    for (size_t i : {1u, 2u}) in[i].select(0, 2).fill_(NAN);
    for (size_t i = 0; i < 3; ++i) in[i].set_requires_grad();
    const Tensor out = attend(c, in);
    EXPECT_TRUE(all_finite(out));
    out.backward(ones(out.shape(), out.options()));
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(all_finite(in[i].grad())) << i;
    for (size_t i : {1u, 2u}) EXPECT_EQ(max_abs(in[i].grad().select(0, 2)), 0);
  }
}

// Adding one vector to every key moves all scores of a query alike, so softmax does not see it.
TEST(Attention, TheBiasOfTheKeysHasNoGradient) {
  const AttentionCase c{.name = "", .segments = kPacked};
  const Tensors in = c.inputs();
  const Tensor key_bias = normal({8}, 6).set_requires_grad(), value_bias = normal({8}, 7).set_requires_grad(),
               query_bias = normal({8}, 8).set_requires_grad();
  const Tensor out = attend(c, {in[0] + query_bias, in[1] + key_bias, in[2] + value_bias, {}, {}});
  const Tensor seed = normal(out.shape(), 9);
  out.backward(seed);
  EXPECT_LE(max_abs(key_bias.grad()), 1e-13);
  EXPECT_GT(max_abs(query_bias.grad()), 1e-2);
  EXPECT_LE(max_difference(value_bias.grad(), sum(seed, {.axes = {0}})), 1e-13);
}

TEST(Attention, LeadingAxesCountAsRows) {
  const AttentionCase c{.name = "", .segments = Segments::dense(2, 3)};
  const Tensors in = c.inputs();
  const Tensor want = attend(c, in);
  Tensors dense = in;
  for (size_t i = 0; i < 3; ++i) dense[i] = in[i].reshape({2, 3, 8});
  const Tensor got = attend(c, dense);
  EXPECT_EQ(got.shape(), (Shape{2, 3, 8}));
  EXPECT_EQ(max_difference(got.reshape({6, 8}), want), 0);
}

TEST(Attention, TheSameTensorThreeTimes) {
  const AttentionCase c{.name = "", .segments = kPacked};
  const Tensor x = normal({9, 8}, 1), seed = normal({9, 8}, 2), shared = x.clone().set_requires_grad();
  attend(c, {shared, shared, shared, {}, {}}).backward(seed);
  const Tensors apart = {
      x.clone().set_requires_grad(), x.clone().set_requires_grad(), x.clone().set_requires_grad(), {}, {}};
  attend(c, apart).backward(seed);
  EXPECT_LE(max_difference(shared.grad(), apart[0].grad() + apart[1].grad() + apart[2].grad()), 1e-13);
}

TEST(Attention, ChangedTensorsAreNoticed) {
  const AttentionCase c{.name = "", .segments = kPacked, .bias = {5, 5}, .relative_limit = 2};
  for (size_t changed = 0; changed < 6; ++changed) {
    const Tensors in = c.inputs();
    for (const Tensor& x : in) x.set_requires_grad();
    const Tensor out = attend(c, in);
    expect_change_is_noticed(out, changed < 5 ? in[changed] : out);
  }
  const Tensor mask = random_mask({5, 5});
  const AttentionCase masked{.name = "", .segments = kPacked, .mask = mask};
  const Tensors in = masked.inputs();
  in[0].set_requires_grad();
  expect_change_is_noticed(attend(masked, in), mask);
}

TEST(Attention, RunsWithoutAGraph) {
  const AttentionCase c{.name = "", .segments = kPacked, .bias = {5, 5}, .relative_limit = 2};
  const Tensors in = c.inputs();
  for (const Tensor& x : in) x.set_requires_grad();
  const NoGrad no_grad;
  const Tensor out = attend(c, in);
  EXPECT_FALSE(out.requires_grad());
  EXPECT_LE(max_difference(out, reference_attention(c, in)), 1e-12);
}

}  // namespace
}  // namespace heed::test
