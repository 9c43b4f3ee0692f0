// Padding, repeating, shifting, splitting, and what is made of nothing.
#include "reference.h"

namespace heed::test {
namespace {

struct PadCase {
  Shape shape;
  std::vector<int64_t> amounts;
};

TEST(Rearrange, Pad) {
  const std::vector<PadCase> cases = {{{5}, {1, 2}},
                                      {{3, 4}, {0, 2}},
                                      {{3, 4}, {1, 0, 2, 3}},
                                      {{3, 4}, {-1, 2}},
                                      {{3, 4}, {-2, -2, 1, 1}},
                                      {{0, 2}, {0, 0, 1, 1}},
                                      {{2, 3, 4}, {0, 0, 1, 1}},
                                      {{3}, {}},
                                      {{3, 4}, {0, 0}}};
  for (const PadCase& c : cases)
    check_op({.name = concat("pad ", c.shape, " ", Shape(c.amounts)),
              .inputs = {normal(c.shape, 1)},
              .function = [=](const Tensors& in) { return one(pad(in[0], c.amounts, 0.5)); },
              .reference =
                  [=](const Tensors& in) {
                    Shape wanted = c.shape;
                    Place before(static_cast<size_t>(c.shape.rank()), 0);
                    for (size_t i = 0; 2 * i < c.amounts.size(); ++i) {
                      const int axis = c.shape.rank() - 1 - static_cast<int>(i);
                      before[static_cast<size_t>(axis)] = c.amounts[2 * i];
                      wanted[axis] += c.amounts[2 * i] + c.amounts[2 * i + 1];
                    }
                    return one(build(wanted, [&](Place p) {
                      for (size_t a = 0; a < p.size(); ++a) {
                        p[a] -= before[a];
                        if (p[a] < 0 || p[a] >= c.shape[static_cast<int>(a)]) return 0.5;
                      }
                      return at(in[0], p);
                    }));
                  }});
}

TEST(Rearrange, Repeat) {
  const std::vector<PadCase> cases = {{{3}, {2}},       {{3}, {2, 3}},
                                      {{2, 3}, {2, 1}}, {{2, 3}, {3, 2}},
                                      {{2, 3}, {1, 0}}, {{}, {2, 2}},
                                      {{2, 3}, {1, 1}}, {{2, 1, 2, 1, 1, 1, 2, 2}, {1, 2, 1, 2, 1, 1, 1, 3}}};
  for (const PadCase& c : cases)
    check_op({.name = concat("repeat ", c.shape, " ", Shape(c.amounts)),
              .inputs = {normal(c.shape, 1)},
              .function = [=](const Tensors& in) { return one(repeat(in[0], c.amounts)); },
              .reference =
                  [=](const Tensors& in) {
                    Shape wanted(c.amounts);
                    const int added = wanted.rank() - c.shape.rank();
                    for (int a = 0; a < c.shape.rank(); ++a) wanted[a + added] *= c.shape[a];
                    return one(build(wanted, [&](Place p) {
                      p.erase(p.begin(), p.begin() + added);
                      for (size_t a = 0; a < p.size(); ++a) p[a] %= c.shape[static_cast<int>(a)];
                      return at(in[0], p);
                    }));
                  }});
}

TEST(Rearrange, Roll) {
  for (const Shape& shape : {Shape{5}, Shape{3, 4}, Shape{0}, Shape{2, 3, 1}})
    for (const int64_t shift : {0, 1, -2, 7})
      check_op({.name = concat("roll ", shape, " by ", shift),
                .inputs = {normal(shape, 1)},
                .function = [=](const Tensors& in) { return one(roll(in[0], shift, -1)); },
                .reference =
                    [=](const Tensors& in) {
                      return one(build(shape, [&](Place p) {
                        const int64_t n = shape[shape.rank() - 1];
                        p.back() = ((p.back() - shift) % n + n) % n;
                        return at(in[0], p);
                      }));
                    }});
  EXPECT_EQ(roll(tensor<int64_t>({1, 2, 3, 4}), 1, 0).to_vector<int64_t>(),
            (std::vector<int64_t>{4, 1, 2, 3}));
}

TEST(Rearrange, SplitBySizes) {
  check_op({.name = "split by sizes",
            .inputs = {normal({4, 6}, 1)},
            .function =
                [](const Tensors& in) {
                  return split(in[0], {1, 0, 3, 2}, 1);
                },
            .reference =
                [](const Tensors& in) {
                  return Tensors{in[0].slice(1, 0, 1).clone(), in[0].slice(1, 1, 1).clone(),
                                 in[0].slice(1, 1, 4).clone(), in[0].slice(1, 4, 6).clone()};
                }});
}

TEST(Rearrange, Linspace) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const TensorOptions options{.device = device};
    EXPECT_EQ(linspace(0, 1, 5, options).to_vector<float>(), (std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1}));
    EXPECT_EQ(linspace(2, -2, 3, options).to_vector<float>(), (std::vector<float>{2, 0, -2}));
    EXPECT_EQ(linspace(3, 9, 1, options).to_vector<float>(), (std::vector<float>{3}));
    EXPECT_EQ(linspace(3, 9, 0, options).numel(), 0);
    EXPECT_EQ(eye(2, -1, options).to_vector<float>(), (std::vector<float>{1, 0, 0, 1}));
    EXPECT_EQ(eye(2, 3, options).to_vector<float>(), (std::vector<float>{1, 0, 0, 0, 1, 0}));
    EXPECT_EQ(eye(3, 2, {DType::i64, device}).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 0, 1, 0, 0}));
    EXPECT_EQ(eye(0, -1, options).shape(), (Shape{0, 0}));
  }
  const std::vector<double> ends = linspace(-1e308, 1e308, 11, {.dtype = DType::f64}).to_vector<double>();
  EXPECT_EQ(ends.front(), -1e308);
  EXPECT_EQ(ends.back(), 1e308);
  EXPECT_EQ(ends[5], 0);
}

TEST(Rearrange, Errors) {
  const Tensor x = zeros({2, 3});
  expect_error<ShapeError>([&] { pad(x, {1}); }, {"pad", "1 amounts", "[2, 3]"});
  expect_error<ShapeError>([&] { pad(x, {0, 0, 0, 0, 1, 1}); }, {"pad", "6 amounts"});
  expect_error<ShapeError>([&] { pad(x, {-2, -2}); }, {"pad", "-2 before and -2 after", "axis 1"});
  expect_error<ConfigError>([&] { pad(x.to(DType::i64), {1, 1}, 0.5); }, {"pad", "0.5"});
  expect_error<ShapeError>([&] { repeat(x, {2}); }, {"repeat", "1 counts", "[2, 3]"});
  expect_error<ShapeError>([&] { repeat(x, {2, -1}); }, {"repeat", "-1"});
  expect_error<IndexError>([&] { roll(x, 1, 2); }, {"roll", "axis 2"});
  expect_error<ShapeError>([&] { split(x, {1, 1}, 1); }, {"split", "add up to 2", "has 3"});
  expect_error<ShapeError>([&] { split(x, {4, -1}, 1); }, {"split", "-1"});
  expect_error<ConfigError>([&] { linspace(0, 1, -1); }, {"linspace", "-1"});
  expect_error<ConfigError>([&] { linspace(0, 1, 3, {.dtype = DType::i64}); }, {"linspace", "i64"});
}

}  // namespace
}  // namespace heed::test
