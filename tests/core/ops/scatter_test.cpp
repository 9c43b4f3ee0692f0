// Putting and choosing elements by index.
#include <numeric>

#include <heed/kernels/embedding.h>

#include "reference.h"

namespace heed::test {
namespace {

double combined(ScatterOp op, double there, double value) {
  switch (op) {
    case ScatterOp::replace:
      return value;
    case ScatterOp::add:
      return there + value;
    case ScatterOp::multiply:
      return there * value;
    case ScatterOp::max:
      return std::max(there, value);
    case ScatterOp::min:
      return std::min(there, value);
  }
  return 0;
}

Tensor reference(ScatterOp op, const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
  const Tensor y = x.contiguous().clone();
  for_each_place(index.shape(), [&](const Place& p) {
    int64_t offset = 0;
    for (int a = 0; a < x.rank(); ++a) {
      const size_t i = static_cast<size_t>(a);
      offset += (a == axis ? static_cast<int64_t>(at(index, p)) : p[i]) * y.strides()[a];
    }
    double& to = y.data<double>()[offset];
    to = combined(op, to, at(source, p));
  });
  return y;
}

constexpr ScatterOp kOps[] = {ScatterOp::replace, ScatterOp::add, ScatterOp::multiply, ScatterOp::max,
                              ScatterOp::min};

struct ScatterCase {
  Shape x, index;
  int axis;
};

TEST(Scatter, EachOperation) {
  const std::vector<ScatterCase> cases = {{{5}, {8}, 0},       {{4, 3}, {6, 3}, 0},
                                          {{4, 3}, {2, 7}, 1}, {{2, 3, 4}, {2, 5, 3}, 1},
                                          {{4, 3}, {0, 3}, 0}, {{1}, {3}, 0}};
  for (const ScatterOp op : kOps)
    for (const ScatterCase& c : cases)
      check_op(
          {.name = concat("scatter ", int(op), " ", c.x, " along ", c.axis, " by ", c.index),
           .inputs = {uniform(c.x, 0.5, 2, 1), indices(c.index, 0, c.x[c.axis], 2),
                      uniform(c.index, 0.5, 2, 3)},
           .function = [=](const Tensors& in) { return one(scatter(in[0], c.axis, in[1], in[2], op)); },
           .reference = [=](const Tensors& in) { return one(reference(op, in[0], c.axis, in[1], in[2])); },
           .ulps = 4,
           .gradient_ulps = 8});
}

// Products whose factors are 0: none, one or two in a place.
TEST(Scatter, ProductsWithZeros) {
  check_op(
      {.name = "scatter of zeros",
       .inputs = {tensor<double>({2, 0, 3, 0}), tensor<int64_t>({0, 0, 1, 2, 2, 3, 3}),
                  tensor<double>({0, 3, 5, 0, 0, 0, 2})},
       .function =
           [](const Tensors& in) { return one(scatter(in[0], 0, in[1], in[2], ScatterOp::multiply)); },
       .reference =
           [](const Tensors& in) { return one(reference(ScatterOp::multiply, in[0], 0, in[1], in[2])); }});
}

TEST(Scatter, EqualExtremaShareTheGradient) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x = tensor<float>({1, 5}, device).set_requires_grad(),
                 source = tensor<float>({3, 3, 5}, device).set_requires_grad();
    const Tensor y = scatter(x, 0, tensor<int64_t>({0, 0, 1}, device), source, ScatterOp::max);
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, 5}));
    y.backward(tensor<float>({6, 4}, device));
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 2}));
    EXPECT_EQ(source.grad().to_vector<float>(), (std::vector<float>{3, 3, 2}));
  }
}

TEST(Scatter, NumbersNanAndIntegers) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor index = tensor<int64_t>({2, 0, 2}, device);
    EXPECT_EQ(scatter(zeros({3}, {.device = device}), 0, index, 7).to_vector<float>(),
              (std::vector<float>{7, 0, 7}));
    const std::vector<float> y =
        scatter(tensor<float>({1, NAN, 2}, device), 0, tensor<int64_t>({0, 1}, device),
                tensor<float>({NAN, 4}, device), ScatterOp::max)
            .to_vector<float>();
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
    EXPECT_EQ(y[2], 2);
    const Tensor i = tensor<int64_t>({1, 2, 3}, device), s = tensor<int64_t>({5, -6, 7}, device);
    EXPECT_EQ(scatter(i, 0, index, s, ScatterOp::multiply).to_vector<int64_t>(),
              (std::vector<int64_t>{-6, 2, 105}));
    EXPECT_EQ(scatter(i, 0, index, s, ScatterOp::min).to_vector<int64_t>(), (std::vector<int64_t>{-6, 2, 3}));
    EXPECT_EQ(scatter(i, 0, index, s).to_vector<int64_t>(), (std::vector<int64_t>{-6, 2, 7}));
    const Tensor flags = tensor<bool>({true, true, false}, device);
    EXPECT_EQ(scatter(flags, 0, index, tensor<bool>({false, false, true}, device)).to_vector<bool>(),
              (std::vector<bool>{false, true, true}));
    expect_error<DTypeError>([&] { scatter(flags, 0, index, flags, ScatterOp::add); }, {"scatter", "bool"});
  }
}

TEST(Scatter, IndexPut) {
  struct Case {
    Shape x;
    std::vector<Shape> indices;
    Shape values;
  };
  const std::vector<Case> cases = {{{5}, {{7}}, {7}},
                                   {{4, 3}, {{6}}, {6, 3}},
                                   {{4, 3}, {{6}, {6}}, {6}},
                                   {{4, 3, 2}, {{2, 1}, {1, 3}}, {2, 3, 2}},
                                   {{4, 3, 2}, {{2, 1}, {1, 3}}, {1}},
                                   {{4, 3}, {{0}}, {0, 3}}};
  for (const bool accumulate : {false, true})
    for (const Case& c : cases) {
      Tensors inputs = {normal(c.x, 1), normal(c.values, 2)};
      Shape places;
      for (size_t i = 0; i < c.indices.size(); ++i) {
        inputs.push_back(indices(c.indices[i], 0, c.x[static_cast<int>(i)], 3 + i));
        places = broadcast_shapes(places, c.indices[i], "test");
      }
      check_op({.name = concat("index_put ", c.x, " of ", c.values, accumulate ? " accumulated" : ""),
                .inputs = inputs,
                .function =
                    [=](const Tensors& in) {
                      return one(index_put(in[0], Tensors(in.begin() + 2, in.end()), in[1], accumulate));
                    },
                .reference =
                    [=](const Tensors& in) {
                      const Tensor y = in[0].clone();
                      Shape all = places;
                      for (int a = static_cast<int>(c.indices.size()); a < c.x.rank(); ++a)
                        all.append(c.x[a]);
                      for_each_place(all, [&](const Place& p) {
                        const Place head(p.begin(), p.begin() + places.rank());
                        int64_t offset = 0;
                        for (int a = 0; a < c.x.rank(); ++a) {
                          const auto given = static_cast<int>(c.indices.size());
                          const int64_t place =
                              a < given ? static_cast<int64_t>(at(in[static_cast<size_t>(2 + a)], head))
                                        : p[static_cast<size_t>(places.rank() + a - given)];
                          offset += place * y.strides()[a];
                        }
                        double& to = y.data<double>()[offset];
                        to = at(in[1], p) + (accumulate ? to : 0);
                      });
                      return one(y);
                    },
                .ulps = 4,
                .gradient_ulps = 4});
    }
}

TEST(Scatter, NonzeroAndMaskedSelect) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x = tensor(std::vector<float>{0, 2, NAN, -0.0f, 0, -1}, {2, 3}, device);
    const Tensor places = nonzero(x);
    EXPECT_EQ(places.shape(), (Shape{3, 2}));
    EXPECT_EQ(places.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 0, 2, 1, 2}));
    EXPECT_EQ(nonzero(x.transpose(0, 1)).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 2, 0, 2, 1}));
    EXPECT_EQ(nonzero(zeros({2, 3, 4}, x.options())).shape(), (Shape{0, 3}));
    EXPECT_EQ(nonzero(zeros({0, 3}, x.options())).shape(), (Shape{0, 2}));
    EXPECT_EQ(nonzero(scalar(3, x.options())).shape(), (Shape{1, 0}));
    // More than one task and one warp.
    const Tensor many = remainder(arange(0, 50000, 1, {DType::i64, device}), 7);
    const std::vector<int64_t> rest = nonzero(equal(many, scalar(3, many.options()))).to_vector<int64_t>();
    ASSERT_EQ(rest.size(), 7143u);
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i], 3 + 7 * static_cast<int64_t>(i));
  }
  const Tensor mask = tensor<bool>({true, false, true, true, false, true}).reshape({2, 3});
  const auto chosen = [](const Tensors& in) {
    std::vector<double> values;
    const Shape shape = broadcast_shapes(in[0].shape(), in[1].shape(), "test");
    for_each_place(shape, [&](const Place& p) {
      if (at(in[1], p) != 0) values.push_back(at(in[0], p));
    });
    return one(tensor(values, {static_cast<int64_t>(values.size())}));
  };
  for (const Shape& shape : {Shape{2, 3}, Shape{3}, Shape{2, 1}, Shape{4, 2, 3}})
    check_op({.name = concat("masked_select ", shape),
              .inputs = {normal(shape, 1), mask},
              .function = [](const Tensors& in) { return one(masked_select(in[0], in[1])); },
              .reference = chosen});
}

TEST(Scatter, IndexSelectAlongAnAxis) {
  for (const Shape& shape : {Shape{4, 3, 5}, Shape{6, 5, 5}})
    for (const int axis : {0, 1, 2, -1}) {
      const Tensor index = tensor<int64_t>({2, 0, kNoToken, 2});
      check_op({.name = concat("index_select ", shape, " along ", axis),
                .inputs = {normal(shape, 1), index},
                .function = [=](const Tensors& in) { return one(index_select(in[0], axis, in[1])); },
                .reference =
                    [=](const Tensors& in) {
                      const size_t place = static_cast<size_t>(axis < 0 ? axis + 3 : axis);
                      Shape wanted = shape;
                      wanted[static_cast<int>(place)] = 4;
                      return one(build(wanted, [&](Place p) {
                        p[place] = static_cast<int64_t>(at(in[1], {p[place]}));
                        return p[place] < 0 ? 0 : at(in[0], p);
                      }));
                    },
                .gradient_ulps = 4});
    }
}

TEST(Scatter, WrongIndices) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x = zeros({2, 3}, {.device = device}), wrong = tensor<int64_t>({0, 3}, device);
    const auto read = [](const Tensor& y) { return y.to_vector<float>(); };
    expect_error<IndexError>(
        [&] {
          read(scatter(x, 1, wrong.reshape({1, 2}), 1));
        },
        {"scatter: index 3 at element 1 of the index is not in [0, 2]"});
    expect_error<IndexError>([&] { read(index_put(x, {wrong}, scalar(1, x.options()))); },
                             {"index_put: index"});
    expect_error<IndexError>(
        [&] {
          read(index_put(x, {wrong - 1.0, wrong}, scalar(1, x.options())));
        },
        {"index_put: index"});
    expect_error<IndexError>([&] { read(index_select(x, 1, wrong)); },
                             {"index_select: index 3 at element 1 of the index is not in [0, 2]"});
  }
}

TEST(Scatter, Errors) {
  const Tensor x = zeros({2, 3}), index = zeros({2}, {.dtype = DType::i64});
  expect_error<ShapeError>([&] { index_put(x, {}, x); }, {"index_put", "0 indices", "[2, 3]"});
  expect_error<ShapeError>([&] { index_put(x, {index, index, index}, x); }, {"index_put", "3 indices"});
  expect_error<ShapeError>([&] { index_put(x, {index}, zeros({5})); }, {"index_put", "[5]", "[2, 3]"});
  expect_error<DTypeError>([&] { index_put(x, {index.to(DType::i32)}, x); }, {"index_put", "i32"});
  expect_error<ShapeError>([&] { index_select(x, 1, index.reshape({1, 2})); }, {"index_select", "[1, 2]"});
  expect_error<DTypeError>([&] { masked_select(x, x); }, {"masked_select", "f32", "bool"});
  expect_error<ShapeError>([&] { scatter(x, 0, index, x); }, {"scatter", "[2]", "[2, 3]"});
}

}  // namespace
}  // namespace heed::test
