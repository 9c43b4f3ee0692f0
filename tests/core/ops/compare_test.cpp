#include "reference.h"

namespace heed::test {
namespace {

struct CompareCase {
  const char* name;
  Tensor (*function)(const Tensor&, const Tensor&);
  bool (*value)(double, double);
};

const std::vector<CompareCase>& comparisons() {
  static const std::vector<CompareCase> cases = {
      {"equal", equal, [](double a, double b) { return a == b; }},
      {"not_equal", not_equal, [](double a, double b) { return a != b; }},
      {"less", less, [](double a, double b) { return a < b; }},
      {"less_equal", less_equal, [](double a, double b) { return a <= b; }},
      {"greater", greater, [](double a, double b) { return a > b; }},
      {"greater_equal", greater_equal, [](double a, double b) { return a >= b; }}};
  return cases;
}

Tensor compared(const CompareCase& op, const Tensor& a, const Tensor& b) {
  return build(
      broadcast_shapes(a.shape(), b.shape(), ""),
      [&](const Place& p) { return op.value(at(a, p), at(b, p)); }, DType::boolean);
}

// Small whole numbers, so that many are equal.
Tensor whole(const Shape& shape, uint64_t seed) { return round(uniform(shape, -1.4, 1.4, seed)); }

TEST(Compare, EveryComparisonOfFloats) {
  const std::vector<std::pair<Shape, Shape>> pairs = {
      {{}, {}},         {{33}, {33}},     {{3, 1}, {1, 5}},
      {{5}, {2, 3, 5}}, {{0, 3}, {1, 3}}, {{2, 1, 2, 1, 2, 1, 2, 1}, {3, 1, 1}}};
  for (const CompareCase& op : comparisons())
    for (const auto& [a, b] : pairs)
      check_op({.name = concat(op.name, " ", a, " ", b),
                .inputs = {whole(a, 1), whole(b, 2)},
                .function = [&op](const Tensors& in) { return one(op.function(in[0], in[1])); },
                .reference = [&op](const Tensors& in) { return one(compared(op, in[0], in[1])); },
                .differentiable = false});
}

TEST(Compare, IntegersAndBools) {
  for (DType dtype : {DType::i64, DType::i32, DType::boolean})
    for (const CompareCase& op : comparisons()) {
      const Tensor a = whole({4, 9}, 1).to(dtype), b = whole({9}, 2).to(dtype);
      EXPECT_TRUE(array_equal(op.function(a, b), compared(op, a.to(DType::f64), b.to(DType::f64))))
          << op.name;
    }
  const int64_t big = (int64_t{1} << 53) + 1;  // not a double
  EXPECT_FALSE(equal(tensor<int64_t>({big}), tensor<int64_t>({big - 1})).item<bool>());
}

TEST(Compare, NanEqualsNothing) {
  const Tensor nan = tensor<float>({NAN}), number = tensor<float>({1});
  for (const CompareCase& op : comparisons()) {
    EXPECT_EQ(op.function(nan, number).item<bool>(), op.value(NAN, 1)) << op.name;
    EXPECT_EQ(op.function(nan, nan).item<bool>(), op.value(NAN, NAN)) << op.name;
  }
  EXPECT_FALSE(array_equal(nan, nan));
}

TEST(Compare, TheGreatestNumberIsFinite) {
  const float most = std::numeric_limits<float>::max();
  for (const Device device : devices()) {
    const Tensor x = tensor<float>({most, -most, 2 * most}).to(device);
    EXPECT_EQ(is_finite(x).to_vector<bool>(), (std::vector<bool>{true, true, false})) << device;
  }
}

TEST(Compare, Predicates) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor x = tensor<double>({0, -1.5, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e30}).to(dtype);
    EXPECT_EQ(is_nan(x).to_vector<bool>(), (std::vector<bool>{false, false, false, false, true, false}));
    EXPECT_EQ(is_finite(x).to_vector<bool>(), (std::vector<bool>{true, true, false, false, false, true}));
    EXPECT_FALSE(all_finite(x));
    EXPECT_TRUE(all_finite(x.slice(0, 0, 2)));
    EXPECT_FALSE(all_finite(x.slice(0, 0, 6, 2)));
    EXPECT_TRUE(all_finite(x.slice(0, 0, 0)));
  }
  EXPECT_TRUE(all_finite(arange(0, 5)));
  EXPECT_EQ(is_nan(arange(0, 2)).to_vector<bool>(), (std::vector<bool>{false, false}));
}

TEST(Compare, Logic) {
  const Tensor a = tensor<bool>({false, false, true, true}), b = tensor<bool>({false, true, false, true});
  EXPECT_EQ(logical_and(a, b).to_vector<bool>(), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(logical_or(a, b).to_vector<bool>(), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(logical_not(a).to_vector<bool>(), (std::vector<bool>{true, true, false, false}));
  const Tensor table = logical_and(a.unsqueeze(1), b);
  EXPECT_EQ(table.shape(), (Shape{4, 4}));
  EXPECT_EQ(sum(table).item<int64_t>(), 4);
}

TEST(Compare, EqualAll) {
  EXPECT_TRUE(array_equal(arange(0, 6).reshape({2, 3}), arange(0, 6).reshape({3, 2}).reshape({2, 3})));
  EXPECT_FALSE(array_equal(arange(0, 6).reshape({2, 3}), arange(0, 6)));
  EXPECT_FALSE(array_equal(arange(0, 6), arange(0, 6).to(DType::f32)));
  EXPECT_TRUE(array_equal(zeros({0, 3}), zeros({0, 3})));
}

TEST(Compare, WhereChoosesAndLeadsGradients) {
  struct Case {
    Shape condition, a, b;
  };
  const std::vector<Case> cases = {{{}, {}, {}},
                                   {{33}, {33}, {33}},
                                   {{3, 1}, {1, 5}, {}},
                                   {{5}, {2, 3, 5}, {3, 1}},
                                   {{4, 1, 1}, {3, 1}, {2}},
                                   {{0, 3}, {1, 3}, {3}},
                                   {{2, 1, 2, 1, 2, 1, 2, 1}, {3, 1, 1}, {1}}};
  for (const Case& c : cases) {
    const Shape shape = broadcast_shapes(c.condition, broadcast_shapes(c.a, c.b, ""), "");
    check_op({.name = concat("where ", c.condition, c.a, c.b),
              .inputs = {indices(c.condition, 0, 2, 1).to(DType::boolean), normal(c.a, 2), normal(c.b, 3)},
              .function = [](const Tensors& in) { return one(where(in[0], in[1], in[2])); },
              .reference =
                  [=](const Tensors& in) {
                    return one(build(
                        shape, [&](const Place& p) { return at(in[0], p) ? at(in[1], p) : at(in[2], p); }));
                  }});
  }
}

TEST(Compare, MaskedFill) {
  for (const Shape& mask : {Shape{}, Shape{5}, Shape{3, 1}, Shape{2, 3, 5}})
    check_op({.name = concat("masked_fill ", mask),
              .inputs = {normal({2, 3, 5}, 1), indices(mask, 0, 2, 2).to(DType::boolean)},
              .function = [](const Tensors& in) { return one(masked_fill(in[0], in[1], -1.5)); },
              .reference =
                  [](const Tensors& in) {
                    return one(
                        build({2, 3, 5}, [&](const Place& p) { return at(in[1], p) ? -1.5 : at(in[0], p); }));
                  }});
  // What is masked does not reach the gradient, NaN included.
  const Tensor x = tensor<float>({NAN, 2}).set_requires_grad();
  sum(masked_fill(x, tensor<bool>({true, false}), 0)).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 1}));
}

TEST(Compare, Errors) {
  const Tensor f = zeros({2, 3}), i = zeros({2, 3}, {.dtype = DType::i64}),
               m = zeros({2, 3}, {.dtype = DType::boolean});
  expect_error<DTypeError>([&] { less(f, i); }, {"less", "f32 and i64"});
  expect_error<ShapeError>([&] { equal(f, zeros({4})); }, {"equal", "[2, 3]", "[4]", "axis -1"});
  expect_error<DTypeError>([&] { logical_and(f, m); }, {"logical_and", "left", "f32", "bool"});
  expect_error<DTypeError>([&] { logical_not(i); }, {"logical_not", "i64"});
  expect_error<DTypeError>([&] { where(f, f, f); }, {"where", "condition", "f32", "bool"});
  expect_error<DTypeError>([&] { where(m, f, i); }, {"where", "f32 and i64"});
  expect_error<ShapeError>([&] { where(zeros({5}, {.dtype = DType::boolean}), f, f); }, {"where", "[5]"});
  expect_error<ShapeError>(
      [&] {
        masked_fill(f, zeros({4, 2, 3}, {.dtype = DType::boolean}), 0);
      },
      {"masked_fill", "[4, 2, 3]", "[2, 3]"});
  expect_error<ConfigError>([&] { masked_fill(i, m, 0.5); }, {"masked_fill", "0.5", "i64"});
  expect_error<ConfigError>([&] { less(i, 0.5); }, {"less", "0.5", "i64"});
  expect_error<ConfigError>([&] { where(m, 0.5, i); }, {"where", "0.5", "i64"});
}

TEST(Compare, WhatRequiresAGradientIsCompared) {
  const Tensor leaf = tensor<float>({-1, 2}).set_requires_grad(), result = leaf * 3.0;
  for (const Tensor& x : {leaf, result})
    for (const Tensor& y : {greater(x, zeros({2})), greater(x, 0), logical_not(is_nan(x)), is_finite(x)})
      EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(greater(result, 0).to_vector<bool>(), (std::vector<bool>{false, true}));
  sum(where(greater(leaf, 0), leaf * leaf, -1)).backward();
  EXPECT_EQ(leaf.grad().to_vector<float>(), (std::vector<float>{0, 4}));
}

TEST(Compare, WithNumbers) {
  using ByNumber = Tensor (*)(const Tensor&, double);
  const std::vector<ByNumber> by_number = {equal, not_equal, less, less_equal, greater, greater_equal};
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16, DType::i64, DType::i32}) {
      const Tensor x = whole({4, 9}, 1).to(dtype).to(device), one = full({}, 1, x.options());
      for (size_t i = 0; i < by_number.size(); ++i)
        EXPECT_TRUE(array_equal(by_number[i](x, 1), comparisons()[i].function(x, one)))
            << i << dtype << device;
    }
  EXPECT_TRUE(equal(tensor<float>({0.1f}), 0.1).item<bool>())
      << "the number is rounded to the tensor's dtype";
  EXPECT_TRUE(equal(tensor({true, false}), 1).to_vector<bool>()[0]);
}

TEST(Compare, WhereWithANumber) {
  check_op({.name = "where with numbers",
            .inputs = {indices({3, 1}, 0, 2, 1).to(DType::boolean), normal({3, 5}, 2)},
            .function =
                [](const Tensors& in) {
                  return Tensors{where(in[0], in[1], -1.5), where(in[0], -1.5, in[1])};
                },
            .reference =
                [](const Tensors& in) {
                  const auto choose = [&](bool first) {
                    return build({3, 5}, [&](const Place& p) {
                      return (at(in[0], p) != 0) == first ? at(in[1], p) : -1.5;
                    });
                  };
                  return Tensors{choose(true), choose(false)};
                }});
}

}  // namespace
}  // namespace heed::test
