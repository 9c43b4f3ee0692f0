#include <numeric>

#include "reference.h"

namespace heed::test {
namespace {

using Reduction = std::function<Tensor(const Tensor&, const ReduceOptions&)>;

struct ReduceCase {
  Shape shape;
  std::vector<int64_t> axes;  // none: all

  ReducedAxes reduced() const { return axes.empty() ? ReducedAxes() : ReducedAxes(axes); }
};

const std::vector<ReduceCase>& cases() {
  static const std::vector<ReduceCase> list = {{{}, {}},
                                               {{1}, {}},
                                               {{7}, {0}},
                                               {{1025}, {}},
                                               {{3, 5}, {}},
                                               {{3, 5}, {0}},
                                               {{3, 5}, {-1}},
                                               {{3, 5}, {0, 1}},
                                               {{2, 3, 4}, {1}},
                                               {{2, 3, 4}, {0, 2}},
                                               {{4, 1, 3}, {1}},
                                               {{0, 3}, {1}},
                                               {{130, 70}, {0}},
                                               {{33, 129}, {1}},
                                               {{2, 1, 2, 1, 3, 1, 2, 2}, {-1, 0, 4}}};
  return list;
}

// The values that go into each result, in row-major order; `reduce` turns them into one.
Tensor reference(const Tensor& x, std::vector<int64_t> axes, bool keep,
                 const std::function<double(const std::vector<double>&)>& reduce) {
  std::vector<bool> gone(static_cast<size_t>(x.rank()), axes.empty());
  for (int64_t axis : axes) gone[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
  Shape kept, with_ones;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool reduced = gone[static_cast<size_t>(axis)];
    if (!reduced) kept.append(x.shape()[axis]);
    with_ones.append(reduced ? 1 : x.shape()[axis]);
  }
  std::vector<std::vector<double>> groups(static_cast<size_t>(kept.numel()));
  for_each_place(x.shape(), [&](const Place& p) {
    int64_t group = 0;
    for (int axis = 0; axis < x.rank(); ++axis)
      if (!gone[static_cast<size_t>(axis)]) group = group * x.shape()[axis] + p[static_cast<size_t>(axis)];
    groups[static_cast<size_t>(group)].push_back(at(x, p));
  });
  size_t next = 0;
  return build(keep ? with_ones : kept, [&](const Place&) { return reduce(groups[next++]); });
}

double total(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }
double average(const std::vector<double>& v) { return total(v) / static_cast<double>(v.size()); }

void check(const std::string& name, const Reduction& function,
           const std::function<double(const std::vector<double>&)>& value, bool of_nothing = true) {
  for (const ReduceCase& c : cases())
    for (bool keep : {false, true}) {
      if (!of_nothing && c.shape.numel() == 0) continue;
      const double magnitude =
          max_abs(reference(normal(c.shape, 1), c.axes, keep, [](const std::vector<double>& v) {
            return std::accumulate(v.begin(), v.end(), 0.0,
                                   [](double sum, double x) { return sum + std::fabs(x); });
          }));
      check_op(
          {.name = concat(name, " of ", c.shape, " axes ", Shape(c.axes), keep ? " keep" : ""),
           .inputs = {normal(c.shape, 1)},
           .function =
               [=](const Tensors& in) { return one(function(in[0], {.axes = c.reduced(), .keep = keep})); },
           .reference = [=](const Tensors& in) { return one(reference(in[0], c.axes, keep, value)); },
           .magnitude = c.shape.numel() > 1000 ? magnitude : 0});
    }
}

TEST(Reduce, Sum) { check("sum", sum, total); }
TEST(Reduce, Mean) { check("mean", mean, average); }

TEST(Reduce, Variance) {
  for (int64_t correction : {0, 1})
    for (const ReduceCase& c : cases()) {
      if (c.shape.numel() < 2 || c.axes == std::vector<int64_t>{1}) continue;
      check_op(
          {.name = concat("variance of ", c.shape, " axes ", Shape(c.axes)),
           .inputs = {normal(c.shape, 1) + 3.0},
           .function =
               [=](const Tensors& in) { return one(variance(in[0], {.axes = c.reduced()}, correction)); },
           .reference =
               [=](const Tensors& in) {
                 return one(reference(in[0], c.axes, false, [=](const std::vector<double>& v) {
                   const double mean = average(v);
                   double squares = 0;
                   for (double x : v) squares += (x - mean) * (x - mean);
                   return squares / static_cast<double>(static_cast<int64_t>(v.size()) - correction);
                 }));
               }});
    }
  EXPECT_TRUE(std::isnan(variance(scalar(2)).item<double>()));
  EXPECT_EQ(variance(scalar(2), {}, 0).item<double>(), 0);
}

TEST(Reduce, MaxAndMin) {
  check(
      "max", [](const Tensor& x, const ReduceOptions& o) { return max(x, o); },
      [](const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }, false);
  check(
      "min", [](const Tensor& x, const ReduceOptions& o) { return min(x, o); },
      [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }, false);
}

TEST(Reduce, Norm) {
  check("norm", norm, [](const std::vector<double>& v) {
    double squares = 0;
    for (double x : v) squares += x * x;
    return std::sqrt(squares);
  });
  EXPECT_EQ(norm(tensor<float>({3e30f, 4e30f})).item<float>(), 5e30f);  // squares beyond f32
  const Tensor zero = zeros({3}).set_requires_grad();
  norm(zero).backward();
  EXPECT_EQ(zero.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(Reduce, LogSumExp) {
  check("logsumexp", logsumexp, [](const std::vector<double>& v) {
    if (v.empty()) return -HUGE_VAL;
    const double largest = *std::max_element(v.begin(), v.end());
    double sum = 0;
    for (double x : v) sum += std::exp(x - largest);
    return largest + std::log(sum);
  });
  const float infinity = HUGE_VALF;
  const Tensor x =
      tensor(std::vector<float>{-infinity, -infinity, 1000, 1000, -infinity, 5}, {3, 2}).set_requires_grad();
  const Tensor y = logsumexp(x, {.axes = {1}});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{-infinity, 1000 + std::log(2.0f), 5}));
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 0.5, 0.5, 0, 1}));
  EXPECT_EQ(logsumexp(tensor<float>({infinity, 1})).item<float>(), infinity);
}

TEST(Reduce, CumSum) {
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{{{7}, 0},
                                                                          {{3, 5}, 0},
                                                                          {{3, 5}, -1},
                                                                          {{2, 3, 4}, 1},
                                                                          {{0, 3}, 0},
                                                                          {{0, 3}, 1},
                                                                          {{2, 1, 2, 1, 3, 1, 2, 2}, 4}}) {
    const Shape s = shape;
    const int64_t a = axis;
    const size_t place = static_cast<size_t>(axis < 0 ? axis + shape.rank() : axis);
    check_op({.name = concat("cumsum of ", shape, " along ", axis),
              .inputs = {normal(shape, 1)},
              .function = [=](const Tensors& in) { return one(cumsum(in[0], a)); },
              .reference =
                  [=](const Tensors& in) {
                    return one(build(s, [&](const Place& p) {
                      double sum = 0;
                      Place q = p;
                      for (q[place] = 0; q[place] <= p[place]; ++q[place]) sum += at(in[0], q);
                      return sum;
                    }));
                  },
              .magnitude = 4});
  }
  EXPECT_EQ(cumsum(tensor<int32_t>({1, 2, 3}), 0).to_vector<int32_t>(), (std::vector<int32_t>{1, 3, 6}));
}

TEST(Reduce, SumTo) {
  const std::vector<std::pair<Shape, Shape>> pairs = {{{3, 5}, {5}},    {{3, 5}, {3, 1}},       {{3, 5}, {}},
                                                      {{3, 5}, {3, 5}}, {{2, 3, 4}, {1, 3, 1}}, {{1, 3}, {3}},
                                                      {{0, 3}, {3}}};
  for (const auto& [from, to] : pairs) {
    const Shape source = from, target = to;
    check_op({.name = concat("sum_to ", from, " to ", to),
              .inputs = {normal(from, 1)},
              .function = [=](const Tensors& in) { return one(sum_to(in[0], target)); },
              .reference =
                  [=](const Tensors& in) {
                    const Tensor y = zeros(target, {.dtype = DType::f64});
                    for_each_place(source, [&](const Place& p) {
                      int64_t offset = 0;
                      for (int axis = 0; axis < target.rank(); ++axis)
                        if (target[axis] != 1)
                          offset += p[static_cast<size_t>(axis + source.rank() - target.rank())] *
                                    y.strides()[axis];
                      y.data<double>()[offset] += at(in[0], p);
                    });
                    return one(y);
                  }});
  }
  expect_error<ShapeError>([] { sum_to(zeros({3, 5}), {4}); }, {"sum_to", "[4]", "[3, 5]"});
  expect_error<ShapeError>([] { sum_to(zeros({1}), {3}); }, {"sum_to", "[3] does not broadcast to [1]"});
}

TEST(Reduce, ArgMaxAndArgMin) {
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{
           {{7}, 0}, {{3, 5}, 0}, {{3, 5}, -1}, {{2, 3, 4}, 1}, {{0, 3}, 1}})
    for (bool largest : {true, false})
      for (bool keep : {true, false}) {
        const int64_t a = axis;
        const size_t place = static_cast<size_t>(axis < 0 ? axis + shape.rank() : axis);
        Shape with_one = shape;
        with_one[static_cast<int>(place)] = 1;
        const Tensor rounded = round(normal(shape, 1));  // with equals
        check_op({.name = concat("argmax of ", shape, " along ", axis),
                  .inputs = {rounded},
                  .function =
                      [=](const Tensors& in) {
                        return one(largest ? argmax(in[0], a, keep) : argmin(in[0], a, keep));
                      },
                  .reference =
                      [=](const Tensors& in) {
                        const Tensor y = build(
                            with_one,
                            [&](Place p) {
                              int64_t best = 0;
                              double extreme = at(in[0], p);
                              for (int64_t i = 1; i < in[0].size(a); ++i) {
                                p[place] = i;
                                const double value = in[0].data<double>()[std::inner_product(
                                    p.begin(), p.end(), in[0].strides().begin(), int64_t{0})];
                                if (largest ? value > extreme : value < extreme) best = i, extreme = value;
                              }
                              return static_cast<double>(best);
                            },
                            DType::i64);
                        return one(keep ? y : y.squeeze(a));
                      },
                  .differentiable = false});
      }
  EXPECT_EQ(argmax(tensor<float>({1, NAN, 3, NAN}), 0).item<int64_t>(), 1);
  EXPECT_EQ(argmin(tensor<float>({1, NAN, 0, NAN}), 0).item<int64_t>(), 1);
  EXPECT_EQ(argmax(tensor<int64_t>({4, 9, 9}), 0).item<int64_t>(), 1);
}

TEST(Reduce, AnyAndAll) {
  const Tensor x = tensor(std::vector<int64_t>{0, 1, 0, 0, 1, 1}, {3, 2}).to(DType::boolean);
  EXPECT_EQ(any(x, {.axes = {1}}).to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(all(x, {.axes = {1}}).to_vector<bool>(), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(all(x, {.axes = {0}, .keep = true}).shape(), (Shape{1, 2}));
  EXPECT_TRUE(any(x).item<bool>());
  EXPECT_FALSE(all(x).item<bool>());
  const Tensor nothing = zeros({2, 0}, {.dtype = DType::boolean});
  EXPECT_EQ(any(nothing, {.axes = {1}}).to_vector<bool>(), (std::vector<bool>{false, false}));
  EXPECT_EQ(all(nothing, {.axes = {1}}).to_vector<bool>(), (std::vector<bool>{true, true}));
  const Tensor large = zeros({100000}, {.dtype = DType::boolean});
  EXPECT_FALSE(any(large).item<bool>());
  large.select(0, 77777).fill_(1);
  EXPECT_TRUE(any(large).item<bool>());
  EXPECT_FALSE(all(large).item<bool>());
}

TEST(Reduce, OfNothing) {
  const Tensor nothing = zeros({2, 0});
  EXPECT_EQ(sum(nothing, {.axes = {1}}).to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_EQ(sum(nothing).item<float>(), 0);
  EXPECT_TRUE(std::isnan(mean(nothing).item<float>()));
  EXPECT_EQ(norm(nothing).item<float>(), 0);
  EXPECT_EQ(logsumexp(nothing).item<float>(), -HUGE_VALF);
  EXPECT_EQ(max(nothing, {.axes = {0}}).shape(), (Shape{0}));
  expect_error<ShapeError>([&] { max(nothing, {.axes = {1}}); }, {"max", "no elements", "[2, 0]"});
  expect_error<ShapeError>([&] { min(nothing); }, {"min", "no elements"});
  expect_error<ShapeError>([&] { argmax(nothing, 1); }, {"argmax", "axis 1", "empty"});
}

TEST(Reduce, IntegersAndNan) {
  EXPECT_EQ(sum(tensor<int32_t>({1 << 30, 1 << 30, 1 << 30})).item<int64_t>(), int64_t{3} << 30);
  EXPECT_EQ(sum(tensor<bool>({true, false, true})).dtype(), DType::i64);
  EXPECT_EQ(max(tensor<int32_t>({-5, -3})).dtype(), DType::i32);
  EXPECT_EQ(max(tensor<int32_t>({-5, -3})).item<int64_t>(), -3);
  const int64_t big = (int64_t{1} << 53) + 1;
  EXPECT_EQ(max(tensor<int64_t>({big, big - 1})).to_vector<int64_t>()[0], big);
  for (int64_t place : {0, 5, 200, 299}) {
    const Tensor x = normal({300}, 1).to(DType::f32);
    x.select(0, place).fill_(NAN);
    EXPECT_TRUE(std::isnan(max(x).item<float>())) << place;
    EXPECT_TRUE(std::isnan(min(x).item<float>())) << place;
    EXPECT_TRUE(std::isnan(sum(x).item<float>())) << place;
  }
  EXPECT_EQ(max(tensor<float>({-HUGE_VALF, -HUGE_VALF})).item<float>(), -HUGE_VALF);
}

TEST(Reduce, EqualMaximaShareTheGradient) {
  const Tensor x = tensor(std::vector<double>{3, 1, 3, 2, 2, 2}, {2, 3}).set_requires_grad();
  max(x, {.axes = {1}}).backward(tensor<double>({6, 9}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{3, 0, 3, 3, 3, 3}));
}

// ---- accuracy and determinism

// Positive terms, so that the sum of magnitudes is the sum.
TEST(Reduce, ErrorsGrowWithTheLogarithm) {
  for (int64_t n : {2, 3, 17, 100, 128, 129, 1000, 65536, 1000003}) {
    const Tensor x = uniform({n}, 0.1, 1, 3);
    long double exact = 0;
    for (int64_t i = 0; i < n; ++i) exact += static_cast<long double>(x.data<double>()[i]);
    const double bound = 4 * 0x1p-52 * std::log2(static_cast<double>(n));
    const auto relative = [&](double y) {
      return std::fabs(static_cast<double>((static_cast<long double>(y) - exact) / exact));
    };
    EXPECT_LE(relative(sum(x).item<double>()), bound) << n;
    // As a column between two others.
    const Tensor wide = x.unsqueeze(1).expand({n, 3}).contiguous();
    EXPECT_LE(relative(sum(wide, {.axes = {0}}).to_vector<double>()[1]), bound) << n;
    const Tensor narrow = x.to(DType::f32);
    const double exact_narrow = sum(narrow.to(DType::f64)).item<double>();
    EXPECT_LE(std::fabs(sum(narrow).item<double>() - exact_narrow), 0x1p-24 * 1.001 * exact_narrow) << n;
    // A running sum in bf16 would stop growing at 256.
    const Tensor coarse = ones({n}, {.dtype = DType::bf16});
    EXPECT_EQ(sum(coarse).item<double>(),
              scalar(static_cast<double>(n), {.dtype = DType::bf16}).item<double>());
  }
}

// Where a result has so many terms that several blocks of a CUDA device share them: against f64.
TEST(Reduce, MoreTermsThanABlockTakes) {
  const std::vector<ReduceCase> large = {{{70001}, {0}}, {{3, 30004}, {1}}, {{2101, 40}, {0}}};
  for (const Device device : devices())
    for (const ReduceCase& c : large) {
      SCOPED_TRACE(concat(c.shape, " on ", device));
      const ReduceOptions options{.axes = c.reduced()};
      const Tensor x = normal(c.shape, 1).to(DType::f32), exact = x.to(DType::f64), there = x.to(device);
      // Each term goes through at most 32 roundings of the sum it is in.
      const double tolerance = 32 * 0x1p-24 * max_abs(sum(abs(exact), options));
      EXPECT_LE(max_difference(sum(there, options), sum(exact, options)), tolerance);
      EXPECT_LE(max_difference(norm(there, options), norm(exact, options)),
                32 * 0x1p-24 * max_abs(norm(exact, options)));
      EXPECT_EQ(max_difference(max(there, options), max(exact, options)), 0);
      EXPECT_EQ(max_difference(argmax(there, c.axes[0]), argmax(exact, c.axes[0])), 0);
    }
}

// Rows and columns of every length that vectors, blocks and tasks end at.
TEST(Reduce, EveryLength) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t n :
         {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 100, 127, 129, 4095, 4096, 4097, 9000})
      for (const int64_t others : {1, 3, 17, 257}) {
        if (n * others > 100000) continue;
        SCOPED_TRACE(concat(dtype, " ", n, " x ", others));
        const Tensor rows = normal({others, n}, static_cast<uint64_t>(n)).to(dtype),
                     wide = rows.to(DType::f64), columns = rows.transpose(0, 1).contiguous();
        const auto check_all = [&](const Tensor& x, int64_t axis) {
          const auto expect_near = [](const Tensor& got, const Tensor& exact, double scale) {
            const double unit = got.dtype() == DType::bf16 ? 0x1p-8 : 0x1p-22;
            EXPECT_LE(max_difference(got, exact), unit * scale);
          };
          const ReduceOptions options{.axes = {axis}}, exact{.axes = {1}};
          expect_near(sum(x, options), sum(wide, exact), max_abs(sum(abs(wide), exact)));
          expect_near(norm(x, options), norm(wide, exact), max_abs(norm(wide, exact)));
          expect_near(logsumexp(x, options), logsumexp(wide, exact), 4 + max_abs(logsumexp(wide, exact)));
          if (n > 1)
            expect_near(variance(x, options), variance(wide, exact), 4 * max_abs(variance(wide, exact)));
          EXPECT_EQ(max_difference(max(x, options), max(wide, exact)), 0);
          EXPECT_EQ(max_difference(min(x, options), min(wide, exact)), 0);
          EXPECT_TRUE(array_equal(argmax(x, axis), argmax(wide, 1)));
          EXPECT_TRUE(array_equal(argmin(x, axis), argmin(wide, 1)));
        };
        check_all(rows, 1);
        check_all(columns, 0);
        check_all(columns.transpose(0, 1), 1);
      }
}

TEST(Reduce, NanInAnyPlaceIsTheExtremum) {
  const int64_t n = 70;
  for (int64_t place = 0; place < n; ++place) {
    std::vector<float> values(static_cast<size_t>(n), 1);
    values[static_cast<size_t>(place)] = std::nanf("");
    const Tensor x = tensor(values, {1, n});
    for (const Tensor& y :
         {max(x, {.axes = {1}}), min(x, {.axes = {1}}), max(x.transpose(0, 1), {.axes = {0}}),
          max(x.expand({3, n}).contiguous().transpose(0, 1).contiguous(), {.axes = {0}})})
      for (float value : y.to_vector<float>()) EXPECT_TRUE(std::isnan(value)) << place;
    EXPECT_EQ(argmax(x, 1).to_vector<int64_t>()[0], place);
    EXPECT_EQ(argmin(x, 1).to_vector<int64_t>()[0], place);
  }
}

// Columns are searched in blocks of rows.
TEST(Reduce, TheFirstOfEqualsInColumns) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const int64_t rows = 400, columns = 150;
  const auto fill = [&](float common, std::vector<int64_t> places, float value) {
    std::vector<float> x(static_cast<size_t>(rows * columns), common);
    for (const int64_t place : places)
      for (int64_t j = 0; j < columns; ++j) x[static_cast<size_t>((place + j % 3) * columns + j)] = value;
    return tensor(x, {rows, columns});
  };
  const auto expect_first = [&](const Tensor& x, int64_t first) {  // -1: all are equal
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<int64_t> found = argmax(x.to(dtype), 0).to_vector<int64_t>();
      for (int64_t j = 0; j < columns; ++j)
        ASSERT_EQ(found[static_cast<size_t>(j)], first < 0 ? 0 : first + j % 3) << dtype << " " << j;
    }
  };
  expect_first(fill(-infinity, {}, 0), -1);
  expect_first(fill(1, {}, 0), -1);
  expect_first(fill(nan, {}, 0), -1);
  for (const int64_t first : {0, 5, 126, 128, 300}) {
    expect_first(fill(1, {first, 350}, 2), first);
    expect_first(fill(1, {first, 350}, nan), first);
    expect_first(fill(-infinity, {first}, -1), first);
  }
}

TEST(Reduce, VarianceAroundALargeMean) {
  const Tensor x = normal({4096}, 5) + 1e6;
  const double exact = variance(x).item<double>();
  const Tensor narrow = x.to(DType::f32);
  const double rounded = variance(narrow.to(DType::f64)).item<double>();
  EXPECT_NEAR(exact, 1, 0.1);
  EXPECT_NEAR(variance(narrow).item<double>(), rounded, 0.01 * rounded);
}

TEST(Reduce, ResultsDoNotDependOnThreadsOrStrides) {
  const Tensor x = normal({7, 90001}, 1).to(DType::f32);
  const auto results = [&] {
    return std::vector<Tensor>{sum(x),
                               sum(x, {.axes = {0}}),
                               sum(x, {.axes = {1}}),
                               variance(x, {.axes = {1}}),
                               max(x),
                               cumsum(x, 1),
                               argmax(x, 0),
                               sum(x.transpose(0, 1), {.axes = {0}}),
                               logsumexp(x, {.axes = {1}}),
                               logsumexp(x.transpose(0, 1), {.axes = {0}})};
  };
  const int before = thread_count();
  set_thread_count(1);
  const std::vector<Tensor> alone = results();
  set_thread_count(4);
  const std::vector<Tensor> together = results();
  set_thread_count(before);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(array_equal(alone[i], together[i])) << i;
  EXPECT_TRUE(array_equal(alone[2], alone[7]));
  EXPECT_TRUE(array_equal(alone[8], alone[9]));
}

TEST(Reduce, TransposedAndExpandedInputs) {
  const Tensor x = normal({5, 70, 3}, 1);
  for (const Shape& order : {Shape{2, 1, 0}, Shape{1, 0, 2}, Shape{2, 0, 1}})
    for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0}, {1}, {2}, {0, 2}, {1, 2}, {}}) {
      const Tensor view = x.permute(order);
      EXPECT_LE(max_difference(sum(view, {.axes = axes}), sum(view.contiguous(), {.axes = axes})), 1e-12);
      EXPECT_TRUE(array_equal(max(view, {.axes = axes}), max(view.contiguous(), {.axes = axes})));
    }
  EXPECT_EQ(sum(scalar(1).expand({300, 200}), {.axes = {1}}).to_vector<float>(),
            std::vector<float>(300, 200));
  EXPECT_EQ(argmax(x.transpose(0, 2), 1).to_vector<int64_t>(),
            argmax(x.transpose(0, 2).contiguous(), 1).to_vector<int64_t>());
}

TEST(Reduce, Errors) {
  const Tensor x = zeros({2, 3}), i = zeros({2, 3}, {.dtype = DType::i64}),
               b = zeros({2, 3}, {.dtype = DType::boolean});
  expect_error<IndexError>([&] { sum(x, {.axes = {2}}); }, {"sum", "axis 2", "[-2, 1]"});
  expect_error<IndexError>([&] { mean(x, {.axes = {0, -2}}); }, {"mean", "axis -2 comes twice"});
  expect_error<DTypeError>([&] { mean(i); }, {"mean", "i64"});
  expect_error<DTypeError>([&] { variance(i); }, {"variance", "i64"});
  expect_error<DTypeError>([&] { norm(i); }, {"norm", "i64"});
  expect_error<DTypeError>([&] { logsumexp(b); }, {"logsumexp", "bool"});
  expect_error<DTypeError>([&] { max(b); }, {"max", "bool", "any()"});
  expect_error<DTypeError>([&] { any(x); }, {"any", "f32", "comparing"});
  expect_error<DTypeError>([&] { cumsum(b, 0); }, {"cumsum", "bool"});
  expect_error<IndexError>([&] { argmax(x, 5); }, {"argmax", "axis 5"});
}

TEST(Reduce, WhatRequiresAGradientIsSearched) {
  const Tensor leaf = tensor<float>({1, 3, 2}).set_requires_grad();
  EXPECT_EQ(argmax(leaf, 0).item<int64_t>(), 1);
  EXPECT_EQ(argmin(leaf * 2.0, 0).item<int64_t>(), 0);
  EXPECT_FALSE(argmax(leaf, 0).requires_grad());
}

// As in PyTorch: not to those that are smaller than others.
TEST(Reduce, TheGradientOfANanGoesToTheNans) {
  for (const Device device : devices())
    for (const auto& extremum : {max, min}) {
      const Tensor x = tensor<float>({1, NAN, 2, NAN, 5, 6, 5, 6}, device).view({2, 4});
      x.set_requires_grad();
      const Tensor y = extremum(x, {.axes = {1}});
      EXPECT_TRUE(std::isnan(y[0].item<float>()));
      sum(y).backward();
      const bool largest = y[1].item<float>() == 6;
      EXPECT_EQ(x.grad().to_vector<float>(),
                (largest ? std::vector<float>{0, 0.5f, 0, 0.5f, 0, 0.5f, 0, 0.5f}
                         : std::vector<float>{0, 0.5f, 0, 0.5f, 0.5f, 0, 0.5f, 0}));
    }
}

TEST(Reduce, TheGradientOfASmallNorm) {
  const auto expect_gradient = [](const Tensor& x, double upstream, double first, double second) {
    x.set_requires_grad();
    (norm(x) * upstream).backward();
    const std::vector<double> g = x.grad().to(kCpu).to(DType::f64).to_vector<double>();
    EXPECT_NEAR(g[0], first, 1e-5 * std::abs(first));
    EXPECT_NEAR(g[1], second, 1e-5 * std::abs(second));
  };
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    expect_gradient(tensor<float>({3e-38f, -4e-38f}, device), 100, 60, -80);
    expect_gradient(tensor<float>({-1.8e37f, 2.4e37f}, device), 100, -60, 80);
    const Tensor subnormal = tensor<float>({3e-40f, -4e-40f}, device);
    if (norm(subnormal).item<float>() != 0)  // else they count as zeros there
      expect_gradient(subnormal, 1, 0.6, -0.8);
  }
}

TEST(Reduce, AResultChangedBeforeTheBackwardIsAnError) {
  const std::vector<Reduction> keeping = {norm,
                                          [](const Tensor& x, const ReduceOptions& o) { return max(x, o); }};
  for (const Reduction& function : keeping) {
    const Tensor x = tensor<float>({1, 2, 3}).set_requires_grad();
    const Tensor y = function(x, {});
    y.detach().fill_(7);
    expect_error<AutogradError>([&] { y.backward(); }, {"changed in place"});
  }
}

// A few floats are added up before they become doubles.
TEST(Reduce, SumsOverflowWhereTheirResultDoes) {
  for (Device device : devices())
    for (DType dtype : {DType::f32, DType::bf16})
      for (const Shape& shape : {Shape{4, 1}, Shape{3, 33}, Shape{40, 7}, Shape{300, 300}, Shape{2, 9000}}) {
        const Tensor x = full(shape, 0x1.8p127, {.dtype = dtype, .device = device});
        for (const int64_t axis : {0, 1}) {
          const ReduceOptions along{.axes = {axis}};
          const double of_mean = max_difference(mean(x, along), mean(x, along) * 0.0 + 0x1.8p127);
          EXPECT_EQ(of_mean, 0) << shape << dtype << axis;
          EXPECT_EQ(max_difference(variance(x, along, 0), variance(x, along, 0) * 0.0), 0) << shape << dtype;
        }
        EXPECT_EQ(mean(x).item<double>(), 0x1.8p127) << shape << dtype;
        EXPECT_EQ(sum(cat({x, -x}, 0)).item<double>(), 0) << shape << dtype;
        EXPECT_EQ(norm(x.slice(0, 0, 1).slice(1, 0, 1)).item<double>(), 0x1.8p127);
      }
}

TEST(Reduce, TheGradientOfNormDoesNotOverflow) {
  for (Device device : devices()) {
    const Tensor x = tensor(std::vector<float>{3e-30f, 4e-30f}, {2}).to(device).set_requires_grad();
    (norm(x) * 1e20).backward();
    const auto g = x.grad().to_vector<float>();
    EXPECT_FLOAT_EQ(g[0], 0.6e20f);
    EXPECT_FLOAT_EQ(g[1], 0.8e20f);
    const Tensor tiny = tensor(std::vector<float>{1e-40f, 0}, {2}).to(device).set_requires_grad();
    norm(tiny).backward();
    for (float value : tiny.grad().to_vector<float>()) EXPECT_TRUE(value == 0 || value == 1) << value;
  }
}

}  // namespace
}  // namespace heed::test
