// log1p, expm1, reciprocal, the smooth and leaky rectifiers, and division with remainder.
#include <cmath>
#include <limits>

#include "../unary_case.h"

namespace heed::test {
namespace {

TEST(Rectifier, OneOperand) {
  const std::vector<UnaryCase> cases = {
      {"log1p", log1p, [](double x) { return std::log1p(x); }, true},
      {"expm1", expm1, [](double x) { return std::expm1(x); }},
      {"reciprocal", reciprocal, [](double x) { return 1 / x; }, true},
      {"softplus", [](const Tensor& x) { return softplus(x); },
       [](double x) { return std::log1p(std::exp(x)); }},
      {"softplus 2.5", [](const Tensor& x) { return softplus(x, 2.5); },
       [](double x) { return std::log1p(std::exp(2.5 * x)) / 2.5; }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); },
       [](double x) { return x > 0 ? x : 0.01 * x; }},
      {"leaky_relu 0.3", [](const Tensor& x) { return leaky_relu(x, 0.3); },
       [](double x) { return x > 0 ? x : 0.3 * x; }},
      {"elu", [](const Tensor& x) { return elu(x); }, [](double x) { return x > 0 ? x : std::expm1(x); }},
      {"elu 1.5", [](const Tensor& x) { return elu(x, 1.5); },
       [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }},
      {"remainder 0.75", [](const Tensor& x) { return remainder(x, 0.75); },
       [](double x) { return x - 0.75 * std::floor(x / 0.75); }},
      {"floor_divide 0.75", [](const Tensor& x) { return floor_divide(x, 0.75); },
       [](double x) { return std::floor(x / 0.75); }}};
  check_unary(cases, 4);
}

TEST(Rectifier, RemainderOfTwoTensors) {
  for (const Shape& shape : {Shape{4, 3}, Shape{3}, Shape{4, 1}})
    check_op(
        {.name = concat("remainder by ", shape),
         .inputs = {normal({4, 3}, 1) * 3.0, uniform(shape, 0.5, 2, 2)},
         .function =
             [](const Tensors& in) {
               return Tensors{remainder(in[0], in[1]), floor_divide(in[0], in[1])};
             },
         .reference =
             [](const Tensors& in) {
               const auto quotient = [&](const Place& p) { return std::floor(at(in[0], p) / at(in[1], p)); };
               return Tensors{
                   build({4, 3}, [&](const Place& p) { return at(in[0], p) - quotient(p) * at(in[1], p); }),
                   build({4, 3}, quotient)};
             },
         .magnitude = 8});
}

// Digits next to 0 and 1, and every kind of number, in units of the last place.
TEST(Rectifier, DigitsAndEnds) {
  const float infinity = HUGE_VALF, least = std::numeric_limits<float>::min();
  std::vector<float> numbers = {0.0f, -0.0f, least, -least, 1e-20f, 1e-8f, -1e-8f, 1e30f, infinity, 88.5f};
  for (int i = -60; i <= 60; ++i) {
    const float x = std::ldexp(1.0f + 0.01f * static_cast<float>(i + 60) / 1.3f, i / 4);
    numbers.push_back(x);
    numbers.push_back(-x);
  }
  for (const float x : {-0.5f, -0.99f, -0.9999999f, -17.5f, -40.0f, -104.0f, 17.0f, 31.5f})
    numbers.push_back(x);
  const auto ulps = [](float got, double want) {
    const float nearest = static_cast<float>(want);
    if (got == nearest || (std::isnan(got) && std::isnan(want))) return 0.0;
    const float next = std::nextafter(std::fabs(nearest), HUGE_VALF);
    return std::fabs(got - want) / (static_cast<double>(next) - std::fabs(nearest));
  };
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x = tensor(numbers, {static_cast<int64_t>(numbers.size())}, device);
    const std::vector<float> logs = log1p(x).to_vector<float>(), exps = expm1(x).to_vector<float>(),
                             soft = softplus(x).to_vector<float>();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double v = numbers[i];
      EXPECT_LE(ulps(logs[i], std::log1p(v)), 4) << "log1p " << v << " " << logs[i];
      EXPECT_LE(ulps(exps[i], std::expm1(v)), 4) << "expm1 " << v << " " << exps[i];
      if (v > -80) {
        EXPECT_LE(ulps(soft[i], std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v)))), 6)
            << "softplus " << v;
      }
    }
    EXPECT_TRUE(std::signbit(logs[1]) && std::signbit(exps[1]));
    const Tensor ends = tensor<float>({-infinity, infinity, NAN, -1, -2}, device);
    const std::vector<float> l = log1p(ends).to_vector<float>(), e = expm1(ends).to_vector<float>(),
                             s = softplus(ends).to_vector<float>(), u = elu(ends).to_vector<float>();
    EXPECT_TRUE(std::isnan(l[0]) && std::isnan(l[2]) && std::isnan(l[4]));
    EXPECT_EQ(l[1], infinity);
    EXPECT_EQ(l[3], -infinity);
    EXPECT_EQ(e[0], -1);
    EXPECT_EQ(e[1], infinity);
    EXPECT_EQ(s[0], 0);
    EXPECT_EQ(s[1], infinity);
    EXPECT_EQ(u[0], -1);
    EXPECT_EQ(u[1], infinity);
    for (const Tensor& y : {expm1(ends), softplus(ends), elu(ends), leaky_relu(ends)})
      EXPECT_TRUE(std::isnan(y.to_vector<float>()[2]));
  }
}

TEST(Rectifier, DivisionRoundsDownAsInPython) {
  const int64_t greatest = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor a = tensor<int64_t>({7, -7, 7, -7, least, greatest, 0}, device),
                 b = tensor<int64_t>({3, 3, -3, -3, -1, greatest - 1, -5}, device);
    EXPECT_EQ(floor_divide(a, b).to_vector<int64_t>(), (std::vector<int64_t>{2, -3, -3, 2, least, 1, 0}));
    EXPECT_EQ(remainder(a, b).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, -2, -1, 0, 1, 0}));
    EXPECT_EQ(floor_divide(a.to(DType::i32), 2).to_vector<int32_t>().at(1), -4);
    // Digits that a double has not.
    EXPECT_EQ(floor_divide(tensor<int64_t>({greatest}, device), 1).item<int64_t>(), greatest);
    const Tensor x = tensor<float>({7, -7, 7, -7, 1, -0.5f, 5}, device),
                 y = tensor<float>({3, 3, -3, -3, 0.1f, HUGE_VALF, 0}, device);
    const std::vector<float> q = floor_divide(x, y).to_vector<float>(),
                             r = remainder(x, y).to_vector<float>();
    EXPECT_EQ(std::vector<float>(q.begin(), q.end() - 1), (std::vector<float>{2, -3, -3, 2, 9, -1}));
    EXPECT_EQ(std::vector<float>(r.begin(), r.begin() + 4), (std::vector<float>{1, 2, -2, -1}));
    EXPECT_EQ(r[5], HUGE_VALF);
    EXPECT_EQ(q[6], HUGE_VALF);
    EXPECT_TRUE(std::isnan(r[6]));
    const Tensor zero = tensor<int64_t>({3, 0, 3, 3, 3, 3, 3}, device);
    expect_error<DataError>([&] { floor_divide(a, zero); }, {"floor_divide", "a divisor is 0"});
    expect_error<DataError>([&] { remainder(a, zero); }, {"remainder", "a divisor is 0"});
    expect_error<DataError>([&] { remainder(a, 0); }, {"remainder", "the divisor is 0"});
    expect_error<ConfigError>([&] { remainder(a, 0.5); }, {"remainder", "0.5", "i64"});
  }
}

std::vector<double> gradient(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  x.set_requires_grad();
  sum(f(x)).backward();
  return x.grad().to_vector<double>();
}

TEST(Rectifier, GradientsAtCorners) {
  const auto leaky = [](const Tensor& x) { return leaky_relu(x, 0.25); };
  const auto exponential = [](const Tensor& x) { return elu(x, 2); };
  EXPECT_EQ(gradient(tensor<double>({-1, 0, 1}), leaky), (std::vector<double>{0.25, 0.25, 1}));
  EXPECT_EQ(gradient(tensor<double>({0, 1}), exponential), (std::vector<double>{2, 1}));
  // The tail of the slope, where 1 - sigmoid would cancel.
  EXPECT_NEAR(gradient(tensor<double>({-60}), [](const Tensor& x) { return softplus(x); })[0] / std::exp(-60),
              1, 1e-12);
}

TEST(Rectifier, ClampOfOneSide) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor i64 = tensor<int64_t>({-9, 2, 9}, device), i32 = i64.to(DType::i32);
    EXPECT_EQ(clamp(i64, -HUGE_VAL, 4).to_vector<int64_t>(), (std::vector<int64_t>{-9, 2, 4}));
    EXPECT_EQ(clamp(i32, 0, HUGE_VAL).to_vector<int32_t>(), (std::vector<int32_t>{0, 2, 9}));
    EXPECT_EQ(clamp(i64.to(DType::f32), 0, HUGE_VAL).to_vector<float>(), (std::vector<float>{0, 2, 9}));
  }
}

TEST(Rectifier, LayoutChangesNoBit) {
  const std::vector<Tensor (*)(const Tensor&)> unary = {log1p,
                                                        expm1,
                                                        reciprocal,
                                                        [](const Tensor& x) { return softplus(x); },
                                                        [](const Tensor& x) { return elu(x); },
                                                        [](const Tensor& x) { return leaky_relu(x); }};
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t n : {1, 5, 16, 31, 600}) {
        SCOPED_TRACE(concat(dtype, " ", n, " on ", device));
        const Tensor x = normal({n, 3}, 1).to(dtype).to(device), apart = abs(x.transpose(0, 1)),
                     y = abs(x.transpose(0, 1).contiguous());
        const Tensor view = abs(x).transpose(0, 1);
        for (size_t i = 0; i < unary.size(); ++i) EXPECT_TRUE(array_equal(unary[i](view), unary[i](y))) << i;
        EXPECT_TRUE(array_equal(remainder(view, apart + 0.5), remainder(y, (apart + 0.5).contiguous())));
      }
}

TEST(Rectifier, Errors) {
  const Tensor i = zeros({2}, {.dtype = DType::i64});
  expect_error<DTypeError>([&] { log1p(i); }, {"log1p", "i64"});
  expect_error<DTypeError>([&] { leaky_relu(i); }, {"leaky_relu", "i64"});
  expect_error<DTypeError>([&] { elu(i); }, {"elu", "i64"});
  expect_error<ConfigError>([&] { softplus(zeros({2}), 0); }, {"softplus", "beta is 0"});
  expect_error<DTypeError>([&] { remainder(zeros({2}, {.dtype = DType::boolean}), 2); },
                           {"remainder", "bool"});
}

}  // namespace
}  // namespace heed::test
