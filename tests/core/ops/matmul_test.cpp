#include "reference.h"

namespace heed::test {
namespace {

// Triple loops over [.., m, k] x [.., k, n], vectors as NumPy takes them.
Tensor product(Tensor a, Tensor b) {
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a = a.unsqueeze(0);
  if (column) b = b.unsqueeze(1);
  const auto leading = [](const Tensor& x) {
    Shape shape = x.shape();
    shape.erase(shape.rank() - 1);
    shape.erase(shape.rank() - 1);
    return shape;
  };
  Shape shape = broadcast_shapes(leading(a), leading(b), "");
  shape.append(a.size(-2));
  shape.append(b.size(-1));
  const size_t m = static_cast<size_t>(shape.rank()) - 2, n = m + 1;
  const Tensor y = build(shape, [&](const Place& p) {
    double sum = 0;
    Place left = p, right = p;
    for (int64_t k = 0; k < a.size(-1); ++k) {
      left[n] = right[m] = k;
      sum += at(a, left) * at(b, right);
    }
    return sum;
  });
  if (row && column) return y.reshape({});
  if (row) return y.squeeze(-2);
  return column ? y.squeeze(-1) : y;
}

// Sums in the operands' own dtype, product by product: what a plain implementation gives.
Tensor composed(const Tensor& a, const Tensor& b) {
  Tensor left = a.rank() == 1 ? a.unsqueeze(0) : a, right = b.rank() == 1 ? b.unsqueeze(1) : b;
  const Tensor y = sum(left.unsqueeze(-1) * right.unsqueeze(-3), {.axes = {-2}});
  if (a.rank() == 1 && b.rank() == 1) return y.reshape({});
  if (a.rank() == 1) return y.squeeze(-2);
  return b.rank() == 1 ? y.squeeze(-1) : y;
}

void check(const Shape& a, const Shape& b) {
  const bool composable = a.rank() < 8 && b.rank() < 8;
  const double terms = static_cast<double>(std::max<int64_t>(1, a[a.rank() - 1]));
  check_op({.name = concat("matmul ", a, " ", b),
            .inputs = {normal(a, 1), normal(b, 2)},
            .function = [](const Tensors& in) { return one(matmul(in[0], in[1])); },
            .reference = [](const Tensors& in) { return one(product(in[0], in[1])); },
            .plain = composable ? [](const Tensors& in) { return one(composed(in[0], in[1])); }
                                : std::function<Tensors(const Tensors&)>(),
            .magnitude = 2 * std::sqrt(terms)});
}

TEST(Matmul, Matrices) {
  check({1, 1}, {1, 1});
  check({3, 5}, {5, 2});
  check({1, 33}, {33, 1});
  check({31, 7}, {7, 33});
  check({17, 129}, {129, 5});
  check({3, 1}, {1, 4});
}

TEST(Matmul, Vectors) {
  check({5}, {5});
  check({5}, {5, 3});
  check({3, 5}, {5});
  check({5}, {2, 5, 3});
  check({2, 3, 5}, {5});
  check({1}, {1});
}

TEST(Matmul, BroadcastBatches) {
  check({4, 3, 5}, {4, 5, 2});
  check({4, 3, 5}, {5, 2});
  check({3, 5}, {4, 5, 2});
  check({4, 1, 3, 5}, {2, 5, 2});
  check({1, 3, 5}, {4, 5, 2});
  check({4, 3, 5}, {1, 5, 2});
  check({2, 1, 3, 4, 5}, {3, 1, 5, 2});
  check({3, 1, 2, 4}, {1, 5, 4, 2});
  check({1, 1, 3, 5}, {5, 2});
  check({2, 1, 2, 1, 2, 1, 3, 5}, {1, 2, 1, 2, 1, 2, 5, 2});
}

TEST(Matmul, EmptyOperands) {
  check({0, 5}, {5, 2});
  check({3, 0}, {0, 2});
  check({3, 5}, {5, 0});
  check({0}, {0});
  check({0, 3, 5}, {5, 2});
  check({0, 3, 5}, {0, 5, 2});
  check({4, 0, 5}, {4, 5, 2});
  check({3, 4, 0}, {0, 5});
  check({0, 3, 5}, {1, 5, 2});
}

// Every way of laying out two axes; the function turns its inputs back.
TEST(Matmul, TransposedOperandsAreReadInPlace) {
  for (int layout = 0; layout < 4; ++layout) {
    const bool a_turned = layout & 1, b_turned = layout & 2;
    for (const Shape& batch : {Shape{}, Shape{3}, Shape{2, 3}}) {
      const auto with = [&](int64_t rows, int64_t cols) {
        Shape shape = batch;
        shape.append(rows);
        shape.append(cols);
        return shape;
      };
      const auto turn = [](const Tensor& x, bool turned) { return turned ? x.transpose(-2, -1) : x; };
      check_op(
          {.name = concat("matmul layout ", layout, " batch ", batch),
           .inputs = {normal(a_turned ? with(5, 4) : with(4, 5), 1),
                      normal(b_turned ? with(3, 5) : with(5, 3), 2)},
           .function =
               [=](const Tensors& in) { return one(matmul(turn(in[0], a_turned), turn(in[1], b_turned))); },
           .reference =
               [=](const Tensors& in) { return one(product(turn(in[0], a_turned), turn(in[1], b_turned))); },
           .magnitude = 8});
    }
  }
}

// [batch, length, heads, width] seen by heads, as attention written by hand does.
TEST(Matmul, PermutedBatches) {
  check_op({.name = "scores and context",
            .inputs = {normal({2, 5, 3, 4}, 1), normal({2, 6, 3, 4}, 2)},
            .function =
                [](const Tensors& in) {
                  const Tensor q = in[0].permute({0, 2, 1, 3}), k = in[1].permute({0, 2, 1, 3});
                  const Tensor scores = matmul(q, k.transpose(-2, -1));
                  return Tensors{scores, matmul(scores, k).permute({0, 2, 1, 3})};
                },
            .reference =
                [](const Tensors& in) {
                  const Tensor q = in[0].permute({0, 2, 1, 3}), k = in[1].permute({0, 2, 1, 3});
                  const Tensor scores = product(q, k.transpose(-2, -1));
                  return Tensors{scores, product(scores, k).permute({0, 2, 1, 3})};
                },
            .magnitude = 64});
}

TEST(Matmul, ExpandedAndStridedOperands) {
  check_op({.name = "expanded",
            .inputs = {normal({1, 4}, 1), normal({4, 1}, 2)},
            .function =
                [](const Tensors& in) {
                  return one(matmul(in[0].expand({3, 4}), in[1].expand({4, 5})));
                },
            .reference =
                [](const Tensors& in) {
                  return one(product(in[0].expand({3, 4}), in[1].expand({4, 5})));
                },
            .magnitude = 8});
  check_op({.name = "columns of a wider matrix",
            .inputs = {normal({6, 12}, 1), normal({4, 9}, 2)},
            .function =
                [](const Tensors& in) { return one(matmul(in[0].slice(1, 4, 8), in[1].slice(1, 0, 9, 3))); },
            .reference =
                [](const Tensors& in) { return one(product(in[0].slice(1, 4, 8), in[1].slice(1, 0, 9, 3))); },
            .magnitude = 8});
}

TEST(Matmul, OneTensorAsBothOperands) {
  check_op({.name = "x x",
            .inputs = {normal({4, 4}, 1)},
            .function = [](const Tensors& in) { return one(matmul(in[0], in[0])); },
            .reference = [](const Tensors& in) { return one(product(in[0], in[0])); },
            .magnitude = 8});
  check_op({.name = "x xT",
            .inputs = {normal({2, 4, 3}, 1)},
            .function = [](const Tensors& in) { return one(matmul(in[0], in[0].transpose(1, 2))); },
            .reference = [](const Tensors& in) { return one(product(in[0], in[0].transpose(1, 2))); },
            .magnitude = 8});
}

// The weight of many products: its gradient is a sum over all rows, kept in f32.
TEST(Matmul, GradientOfASharedBf16MatrixIsSummedInF32) {
  const Tensor x = ones({300, 2, 1, 1}, {.dtype = DType::bf16});
  const Tensor w = ones({1, 2, 1, 1}, {.dtype = DType::bf16}).set_requires_grad();
  matmul(x, w).backward(ones({300, 2, 1, 1}, {.dtype = DType::bf16}));
  EXPECT_EQ(w.grad().to(DType::f64).to_vector<double>(), (std::vector<double>{300, 300}));
}

TEST(Matmul, NanTimesZeroIsNan) {
  const Tensor a = tensor(std::vector<float>{0, 0}, {1, 2}), b = tensor(std::vector<float>{NAN, 1}, {2, 1});
  EXPECT_TRUE(std::isnan(matmul(a, b).item<float>()));
}

TEST(Matmul, Errors) {
  expect_error<ShapeError>(
      [] {
        matmul(zeros({2, 3}), zeros({4, 5}));
      },
      {"matmul", "[2, 3]", "[4, 5]", "axis -1 of the left has 3", "axis -2 of the right 4"});
  expect_error<ShapeError>([] { matmul(zeros({2, 3}), zeros({4})); }, {"matmul", "axis -1 of the right 4"});
  expect_error<ShapeError>(
      [] {
        matmul(zeros({2, 3, 4}), zeros({3, 4, 5}));
      },
      {"matmul", "[2]", "[3]", "broadcast"});
  expect_error<ShapeError>([] { matmul(scalar(1), zeros({3})); }, {"matmul", "[]", "at least one axis"});
  expect_error<DTypeError>(
      [] {
        matmul(zeros({2, 3}), zeros({3, 2}, {.dtype = DType::boolean}));
      },
      {"matmul", "f32 and bool", "to(DType)"});
  expect_error<DTypeError>([] { matmul(arange(0, 3), arange(0, 3)); }, {"matmul", "i64"});
}

}  // namespace
}  // namespace heed::test
