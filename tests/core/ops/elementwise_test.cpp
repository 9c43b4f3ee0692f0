#include "unary_case.h"

namespace heed::test {
namespace {

struct BinaryCase {
  const char* name;
  Tensor (*function)(const Tensor&, const Tensor&);
  double (*value)(double, double);
  bool positive = false;  // operands
};

void check(const BinaryCase& op, const Shape& a, const Shape& b) {
  const auto values = [&](const Shape& shape, uint64_t seed) {
    return op.positive ? uniform(shape, 0.5, 2, seed) : normal(shape, seed);
  };
  check_op({.name = concat(op.name, " ", a, " ", b),
            .inputs = {values(a, 1), values(b, 2)},
            .function = [=](const Tensors& in) { return one(op.function(in[0], in[1])); },
            .reference =
                [=](const Tensors& in) {
                  return one(build(broadcast_shapes(a, b, ""),
                                   [&](const Place& p) { return op.value(at(in[0], p), at(in[1], p)); }));
                }});
}

const std::vector<BinaryCase>& binaries() {
  static const std::vector<BinaryCase> cases = {
      {"add", add, [](double a, double b) { return a + b; }},
      {"subtract", subtract, [](double a, double b) { return a - b; }},
      {"multiply", multiply, [](double a, double b) { return a * b; }},
      {"divide", divide, [](double a, double b) { return a / b; }, true},
      {"power", [](const Tensor& a, const Tensor& b) { return power(a, b); },
       [](double a, double b) { return std::pow(a, b); }, true},
      {"maximum", maximum, [](double a, double b) { return std::max(a, b); }},
      {"minimum", minimum, [](double a, double b) { return std::min(a, b); }}};
  return cases;
}

TEST(Elementwise, TwoOperandsOfOneShape) {
  for (const BinaryCase& op : binaries())
    for (const Shape& shape : awkward_shapes()) check(op, shape, shape);
}

TEST(Elementwise, Broadcasting) {
  for (const BinaryCase& op : binaries()) {
    check(op, {3, 1}, {1, 5});
    check(op, {5}, {2, 3, 5});
    check(op, {4}, {});
    check(op, {2, 1, 3}, {4, 1});
    check(op, {0, 3}, {1, 3});
    check(op, {1, 0}, {4, 1});
    check(op, {2, 1, 2, 1, 2, 1, 2, 1}, {1, 3, 1, 2, 1, 2, 1, 2});
  }
}

TEST(Elementwise, TransposedOperands) {
  for (const BinaryCase& op : binaries())
    check_op({.name = op.name,
              .inputs = {uniform({4, 3, 2}, 0.5, 2, 1), uniform({2, 3, 4}, 0.5, 2, 2)},
              .function = [=](const Tensors& in) { return one(op.function(in[0].transpose(0, 2), in[1])); },
              .reference =
                  [=](const Tensors& in) {
                    return one(build({2, 3, 4}, [&](const Place& p) {
                      return op.value(at(in[0], {p[2], p[1], p[0]}), at(in[1], p));
                    }));
                  }});
}

TEST(Elementwise, OneTensorAsBothOperands) {
  for (const BinaryCase& op : binaries())
    check_op({.name = op.name,
              .inputs = {uniform({3, 4}, 0.5, 2, 1)},
              .function = [=](const Tensors& in) { return one(op.function(in[0], in[0])); },
              .reference =
                  [=](const Tensors& in) {
                    return one(
                        build({3, 4}, [&](const Place& p) { return op.value(at(in[0], p), at(in[0], p)); }));
                  }});
}

TEST(Elementwise, OneOperand) {
  const std::vector<UnaryCase> cases = {
      {"negative", [](const Tensor& x) { return -x; }, [](double x) { return -x; }},
      {"exp", exp, [](double x) { return std::exp(x); }},
      {"log", log, [](double x) { return std::log(x); }, true},
      {"sqrt", sqrt, [](double x) { return std::sqrt(x); }, true},
      {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, true},
      {"sin", sin, [](double x) { return std::sin(x); }},
      {"cos", cos, [](double x) { return std::cos(x); }},
      {"tanh", tanh, [](double x) { return std::tanh(x); }},
      {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"erf", erf, [](double x) { return std::erf(x); }},
      {"abs", abs, [](double x) { return std::fabs(x); }},
      {"square", square, [](double x) { return x * x; }},
      {"floor", floor, [](double x) { return std::floor(x); }},
      {"round", round, [](double x) { return std::nearbyint(x); }},
      {"sign", sign, [](double x) { return double(x > 0) - double(x < 0); }},
      {"power 3", [](const Tensor& x) { return power(x, 3.0); }, [](double x) { return x * x * x; }},
      {"power 0.5", [](const Tensor& x) { return power(x, 0.5); }, [](double x) { return std::sqrt(x); },
       true},
      {"power 2.3", [](const Tensor& x) { return power(x, 2.3); }, [](double x) { return std::pow(x, 2.3); },
       true},
      {"power -1", [](const Tensor& x) { return power(x, -1.0); }, [](double x) { return 1 / x; }, true},
      {"power 4", [](const Tensor& x) { return power(x, 4.0); }, [](double x) { return x * x * x * x; }},
      {"power 0", [](const Tensor& x) { return power(x, 0.0); }, [](double) { return 1; }},
      {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 0.75); },
       [](double x) { return std::min(std::max(x, -0.5), 0.75); }},
      {"maximum 0.5", [](const Tensor& x) { return maximum(x, 0.5); },
       [](double x) { return std::max(x, 0.5); }},
      {"minimum 0.5", [](const Tensor& x) { return minimum(x, 0.5); },
       [](double x) { return std::min(x, 0.5); }},
      {"x + 2", [](const Tensor& x) { return x + 2.0; }, [](double x) { return x + 2; }},
      {"2 + x", [](const Tensor& x) { return 2.0 + x; }, [](double x) { return x + 2; }},
      {"x - 2", [](const Tensor& x) { return x - 2.0; }, [](double x) { return x - 2; }},
      {"2 - x", [](const Tensor& x) { return 2.0 - x; }, [](double x) { return 2 - x; }},
      {"x * 2.5", [](const Tensor& x) { return x * 2.5; }, [](double x) { return x * 2.5; }},
      {"2.5 * x", [](const Tensor& x) { return 2.5 * x; }, [](double x) { return x * 2.5; }},
      {"x / 2", [](const Tensor& x) { return x / 2.0; }, [](double x) { return x / 2; }},
      {"2 / x", [](const Tensor& x) { return 2.0 / x; }, [](double x) { return 2 / x; }, true}};
  check_unary(cases);
}

// ---- gradients where a function has a corner

std::vector<double> gradient(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  x.set_requires_grad();
  sum(f(x)).backward();
  return x.grad().to_vector<double>();
}

TEST(Elementwise, EqualOperandsOfAnExtremumShareTheGradient) {
  for (const bool larger : {true, false}) {
    const Tensor a = tensor<double>({1, 2, 3}).set_requires_grad();
    const Tensor b = tensor<double>({1, 5, 0}).set_requires_grad();
    sum(larger ? maximum(a, b) : minimum(a, b)).backward();
    EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{0.5, larger ? 0. : 1., larger ? 1. : 0.}));
    EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{0.5, larger ? 1. : 0., larger ? 0. : 1.}));
  }
}

TEST(Elementwise, GradientsAtCorners) {
  EXPECT_EQ(gradient(tensor<double>({-2, 0, 3}), abs), (std::vector<double>{-1, 0, 1}));
  EXPECT_EQ(gradient(tensor<double>({-1, 1, 0, -2, 2}), [](const Tensor& x) { return clamp(x, -1, 1); }),
            (std::vector<double>{1, 1, 1, 0, 0}));
  EXPECT_EQ(gradient(tensor<double>({0, 2}), [](const Tensor& x) { return power(x, 0.0); }),
            (std::vector<double>{0, 0}));
  EXPECT_EQ(gradient(tensor<double>({0, 2}), [](const Tensor& x) { return power(x, 1.0); }),
            (std::vector<double>{1, 1}));
  const Tensor exponents = tensor<double>({0, 1, 2});
  EXPECT_EQ(gradient(zeros({3}, {.dtype = DType::f64}), [&](const Tensor& x) { return power(x, exponents); }),
            (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(gradient(exponents.clone(), [](const Tensor& e) { return power(zeros_like(e), e); }),
            (std::vector<double>{0, 0, 0}));
}

TEST(Elementwise, TheGradientOfANanGoesToBothOperands) {
  for (const bool larger : {true, false}) {
    const Tensor a = tensor<float>({NAN, 1, NAN}).set_requires_grad();
    const Tensor b = tensor<float>({1, NAN, NAN}).set_requires_grad();
    sum(larger ? maximum(a, b) : minimum(a, b)).backward();
    for (const Tensor& x : {a, b}) EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 1, 1}));
  }
}

// The gradient is finite in f32, but a factor of it need not be.
TEST(Elementwise, GradientsOfExtremeOperands) {
  struct Case {
    const char* name;
    std::function<Tensor(const Tensor&)> function;
    float x, upstream;
    double gradient;
  };
  const auto over = [](float a) {
    return [a](const Tensor& x) { return full(x.shape(), a, x.options()) / x; };
  };
  const auto to_the = [](float e) {
    return [e](const Tensor& x) { return power(x, full(x.shape(), e, x.options())); };
  };
  const std::vector<Case> cases = {
      {"a / x", over(1e-30f), 1e-20f, 1e20f, -1e30},
      {"0 / x", over(0), 2e-38f, 1e10f, 0},
      {"0 / a subnormal", over(0), 1e-40f, 1, 0},
      {"number / x", [](const Tensor& x) { return 1e-30 / x; }, 1e-20f, 1e20f, -1e30},
      {"x ^ -1", [](const Tensor& x) { return power(x, -1.0); }, 1e-20f, 1e-20f, -1e20},
      {"x ^ -0.5", [](const Tensor& x) { return power(x, -0.5); }, 1e-30f, 1e-20f, -0.5e25},
      {"x ^ tensor", to_the(-1), 1e-20f, 1e-20f, -1e20},
      {"x ^ tensor 2", to_the(2), 1e20f, 1e10f, 2e30},
      {"rsqrt", rsqrt, 1e-30f, 1e-20f, -0.5e25},
      {"sqrt", sqrt, 1e-36f, 1e10f, 0.5e28},
      {"log", log, 1e-30f, 1e-20f, 1e10},
      {"square", square, 1e20f, 1e10f, 2e30}};
  for (const Device device : devices())
    for (const Case& c : cases) {
      const Tensor x = tensor<float>({c.x}, device).set_requires_grad();
      c.function(x).backward(tensor<float>({c.upstream}, device));
      EXPECT_NEAR(x.grad().item<double>(), c.gradient, 1e-5 * std::abs(c.gradient)) << c.name << device;
    }
  const Tensor zero = tensor<float>({0}).set_requires_grad();
  power(zero, -1.0).backward();
  EXPECT_EQ(zero.grad().item<float>(), -HUGE_VALF);
}

TEST(Elementwise, AssignmentsAreRecordedAndChangeNoOtherHandle) {
  const Tensor x = tensor<float>({1, 2, 3}).set_requires_grad();
  Tensor y = x * 2.0;
  const Tensor before = y;
  y += x;
  y -= 1.0;
  y *= x;
  y /= 2.0;  // (3 x - 1) x / 2
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 5, 12}));
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{2, 4, 6}));
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2.5f, 5.5f, 8.5f}));
  Tensor wide = tensor<float>({1, 2});
  wide += zeros({3, 1});
  wide -= tensor<float>({1, 0});
  wide *= 3.0;
  wide /= tensor<float>({3, 2});
  EXPECT_EQ(wide.to_vector<float>(), (std::vector<float>{0, 3, 0, 3, 0, 3}));
}

TEST(Elementwise, AParameterStaysOneWhenItIsAssignedTo) {
  Tensor weight = tensor<float>({1, 2}).set_requires_grad();
  const Tensor same = weight;
  expect_error<AutogradError>([&] { weight -= 0.5; }, {"-=", "leaf that requires a gradient", "NoGrad"});
  sum(square(weight)).backward();
  {
    const NoGrad no_grad;
    weight -= weight.grad() * 0.25;
    weight += 1.0;
    expect_error<ShapeError>([&] { weight += zeros({3, 1}); }, {"[3, 2]", "[2]"});
  }
  EXPECT_TRUE(weight.is_leaf() && weight.requires_grad());
  EXPECT_EQ(same.to_vector<float>(), (std::vector<float>{1.5f, 2}));
}

// ---- special values, integers, kinds of numbers

TEST(Elementwise, NanComesThrough) {
  const double nan = std::nan("");
  const Tensor a = tensor<float>({float(nan), 1, float(nan)}), b = tensor<float>({1, float(nan), float(nan)});
  for (const Tensor& y : {maximum(a, b), minimum(a, b), a + b, a * b, clamp(a + b, 0, 1), sign(a + b)})
    for (float value : y.to_vector<float>()) EXPECT_TRUE(std::isnan(value));
  const float infinity = HUGE_VALF;
  EXPECT_EQ(sigmoid(tensor<float>({-infinity, infinity, -200, 200})).to_vector<float>(),
            (std::vector<float>{0, 1, 0, 1}));
  EXPECT_EQ(round(tensor<float>({0.5, 1.5, -0.5, 2.5})).to_vector<float>(),
            (std::vector<float>{0, 2, -0.f, 2}));
}

TEST(Elementwise, LogarithmsOfEveryFloat) {
  const float infinity = HUGE_VALF, least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> y =
      log(tensor<float>({0, -0.f, infinity, 1, least, 1e-40f, -1, -infinity})).to_vector<float>();
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 4),
            (std::vector<float>{-infinity, -infinity, infinity, 0}));
  EXPECT_NEAR(y[4], std::log(double{least}), 2e-5);
  EXPECT_NEAR(y[5], std::log(double{1e-40f}), 2e-5);
  EXPECT_TRUE(std::isnan(y[6]));
  EXPECT_TRUE(std::isnan(y[7]));
}

TEST(Elementwise, PowersAtTheEdges) {
  const float infinity = HUGE_VALF;
  const Tensor x = tensor<float>({0, -0.f, infinity, -infinity, -2, 4});
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const auto to = [&](double exponent) { return power(x.to(device), exponent).to_vector<float>(); };
    const std::vector<float> half = to(0.5), inverse = to(-1), cubes = to(3), fifth = to(5);
    EXPECT_EQ(half[0], 0);
    EXPECT_EQ(half[1], 0);
    EXPECT_FALSE(std::signbit(half[1]));
    EXPECT_EQ(half[3], infinity);
    EXPECT_TRUE(std::isnan(half[4]));
    EXPECT_EQ(half[5], 2);
    EXPECT_EQ(inverse, (std::vector<float>{infinity, -infinity, 0, -0.f, -0.5f, 0.25f}));
    EXPECT_EQ(cubes, (std::vector<float>{0, -0.f, infinity, -infinity, -8, 64}));
    EXPECT_EQ(fifth, (std::vector<float>{0, -0.f, infinity, -infinity, -32, 1024}));
  }
}

TEST(Elementwise, ClampLeavesNanAndKindsOfNumbers) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x = tensor<float>({-3, NAN, 0.25f, 3}).to(device).set_requires_grad();
    const Tensor y = clamp(x, -1, 1);
    sum(y).backward();
    const std::vector<float> values = y.to_vector<float>();
    EXPECT_EQ(values[0], -1);
    EXPECT_TRUE(std::isnan(values[1]));
    EXPECT_EQ(values[2], 0.25f);
    EXPECT_EQ(values[3], 1);
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 1, 0}));
    EXPECT_EQ(clamp(tensor<int64_t>({-9, 2, 9}, device), -4, 4).to_vector<int64_t>(),
              (std::vector<int64_t>{-4, 2, 4}));
    EXPECT_EQ(clamp(tensor<int32_t>({-9, 2, 9}, device), 0, 4).to_vector<int32_t>(),
              (std::vector<int32_t>{0, 2, 4}));
  }
  expect_error<ConfigError>([] { clamp(tensor<int64_t>({1}), 0.5, 2); }, {"clamp", "0.5", "i64"});
  expect_error<DTypeError>([] { clamp(tensor<bool>({true}), 0, 1); }, {"clamp", "bool"});
}

TEST(Elementwise, IntegersWrapAndHaveNoDivision) {
  const int64_t greatest = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const auto i64 = [&](std::initializer_list<int64_t> values) { return tensor<int64_t>(values, device); };
    const auto i32 = [&](std::initializer_list<int32_t> values) { return tensor<int32_t>(values, device); };
    const Tensor x = i64({greatest, least, 3});
    EXPECT_EQ((x + 1.0).to_vector<int64_t>(), (std::vector<int64_t>{least, least + 1, 4}));
    EXPECT_EQ((-x).to_vector<int64_t>(), (std::vector<int64_t>{-greatest, least, -3}));
    EXPECT_EQ(abs(x).to_vector<int64_t>(), (std::vector<int64_t>{greatest, least, 3}));
    EXPECT_EQ(maximum(x, i64({5})).to_vector<int64_t>(), (std::vector<int64_t>{greatest, 5, 5}));
    EXPECT_EQ(square(i32({-3, 1 << 20})).to_vector<int32_t>(), (std::vector<int32_t>{9, 0}));
    EXPECT_EQ(sign(i32({-3, 0, 7})).to_vector<int32_t>(), (std::vector<int32_t>{-1, 0, 1}));
    EXPECT_EQ((7.0 - i32({2, 9})).to_vector<int32_t>(), (std::vector<int32_t>{5, -2}));
  }
  const Tensor x = tensor<int64_t>({greatest, least, 3});
  expect_error<DTypeError>([&] { x / x; }, {"divide", "i64", "to(DType::f32)"});
  expect_error<DTypeError>([&] { power(x, 2.0); }, {"power", "i64"});
  expect_error<DTypeError>([&] { exp(x); }, {"exp", "floating-point", "i64"});
  expect_error<ConfigError>([&] { x + 0.5; }, {"add", "0.5", "i64"});
  expect_error<ConfigError>([&] { tensor<int32_t>({1}) * 3e9; }, {"multiply", "3e+09", "i32"});
}

TEST(Elementwise, Errors) {
  const Tensor f = zeros({2, 3}), d = zeros({2, 3}, {.dtype = DType::f64}),
               b = zeros({2, 3}, {.dtype = DType::boolean});
  expect_error<ShapeError>([&] { f + zeros({2, 4}); }, {"add", "[2, 3]", "[2, 4]", "axis -1", "3 and 4"});
  expect_error<ShapeError>([&] { f* zeros({3, 1, 4, 3}); }, {"multiply", "axis -2", "2 and 4"});
  expect_error<DTypeError>([&] { f + d; }, {"add", "f32 and f64", "to(DType)"});
  expect_error<DTypeError>([&] { b + b; }, {"add", "bool"});
  expect_error<DTypeError>([&] { abs(b); }, {"abs", "bool"});
  expect_error<ConfigError>([&] { clamp(f, 1, 0); }, {"clamp", "low is 1 and high 0"});
  expect_error<ConfigError>([&] { clamp(f, std::nan(""), 0); }, {"clamp", "nan"});
  expect_error<StateError>([&] { f + Tensor(); }, {"undefined"});
}

// Elements that lie apart are computed as those side by side are, in rows of every length.
TEST(Elementwise, LayoutChangesNoBit) {
  const auto clamped = [](const Tensor& x) { return clamp(x, 0.5, 2); };
  const auto cube = [](const Tensor& x) { return power(x, 3.0); };
  const auto root = [](const Tensor& x) { return power(x, 0.5); };
  const auto chosen = [](const Tensor& a, const Tensor& b) { return where(less(a, b), a, b); };
  const auto as_numbers = [](const Tensor& a, const Tensor& b) { return greater_equal(a, b).to(a.dtype()); };
  const std::vector<Tensor (*)(const Tensor&)> unary = {exp,   log,     sqrt,      rsqrt,   sin,    cos,
                                                        tanh,  sigmoid, erf,       abs,     square, floor,
                                                        round, sign,    is_finite, clamped, cube,   root};
  const std::vector<Tensor (*)(const Tensor&, const Tensor&)> binary = {
      add, subtract, multiply, divide, maximum, minimum, power, equal, not_equal, less, chosen, as_numbers};
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [n, rows] :
           {std::pair<int64_t, int64_t>{1, 3}, {5, 3}, {16, 3}, {31, 3}, {600, 3}, {70, 40}}) {
        SCOPED_TRACE(concat(dtype, " ", n, " on ", device));
        const Tensor x = uniform({n, rows}, 0.25, 3, 1).to(dtype).to(device),
                     y = uniform({n, rows}, 0.25, 3, 2).to(dtype).to(device);
        const Tensor apart = x.transpose(0, 1), together = apart.contiguous();
        for (size_t i = 0; i < unary.size(); ++i)
          EXPECT_TRUE(array_equal(unary[i](apart), unary[i](together))) << i;
        const Tensor one = y.slice(0, 0, 1).transpose(0, 1), each = one.expand({rows, n}).contiguous();
        const Tensor gaps = cat({together, together}, 1).slice(1, 0, 2 * n, 2);
        for (size_t i = 0; i < binary.size(); ++i) {
          EXPECT_TRUE(array_equal(binary[i](apart, y.transpose(0, 1)),
                                  binary[i](together, y.transpose(0, 1).contiguous())))
              << i;
          EXPECT_TRUE(array_equal(binary[i](apart, one), binary[i](together, each))) << i;
          EXPECT_TRUE(array_equal(binary[i](one, apart), binary[i](each, together))) << i;
          EXPECT_TRUE(array_equal(binary[i](apart, gaps), binary[i](together, gaps.contiguous()))) << i;
          EXPECT_TRUE(array_equal(binary[i](gaps, apart), binary[i](gaps.contiguous(), together))) << i;
        }
      }
}

TEST(Elementwise, ResultsDoNotDependOnThreads) {
  const Tensor a = normal({3, 70001}, 1).to(DType::f32), b = normal({70001}, 2).to(DType::f32);
  const auto results = [&] { return std::vector<Tensor>{a + b, exp(a), maximum(a, b), -a.transpose(0, 1)}; };
  const int before = thread_count();
  set_thread_count(1);
  const std::vector<Tensor> alone = results();
  set_thread_count(3);
  const std::vector<Tensor> together = results();
  set_thread_count(before);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(array_equal(alone[i], together[i])) << i;
}

}  // namespace
}  // namespace heed::test
