#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>
#include <heed/kernels/embedding.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr uint64_t kSeed = 33;
constexpr int64_t kVocabulary = 7, kPositions = 5;

struct Case {
  Shape ids;
  int64_t cols = 4;
  double scale = 1;
  bool position = false;
  double dropout = 0;
  bool gaps = false;  // some ids are kNoToken
};

Tensor make_ids(const Shape& shape, int64_t below, bool gaps) {
  const Tensor ids = empty(shape, {.dtype = DType::i64});
  for (int64_t i = 0; i < ids.numel(); ++i)
    ids.data<int64_t>()[i] = gaps && i % 3 == 1 ? kNoToken : (i * i + 2) % below;
  return ids;
}

Shape with_cols(const Tensor& ids, int64_t cols) {
  Shape shape = ids.shape();
  shape.append(cols);
  return shape;
}

Tensor reference(const Tensors& in, const Case& c) {
  const Tensor ids = in[1].contiguous(), weight = in[0].contiguous(), position = in[2], position_ids = in[3];
  const Tensor y = zeros(with_cols(ids, c.cols), weight.options());
  for (int64_t r = 0; r < ids.numel(); ++r) {
    const int64_t id = ids.data<int64_t>()[r];
    if (id == kNoToken) continue;
    for (int64_t d = 0; d < c.cols; ++d) {
      double value = c.scale * weight.data<double>()[id * c.cols + d];
      if (position.defined())
        value +=
            position.contiguous().data<double>()[position_ids.contiguous().data<int64_t>()[r] * c.cols + d];
      y.data<double>()[r * c.cols + d] = value;
    }
  }
  return y * dropout_factors(y.shape(), c.dropout, kSeed);
}

void check(const Case& c) {
  const Tensor ids = make_ids(c.ids, kVocabulary, c.gaps);
  check_composed(
      {.name = concat("embedding ", c.ids, " x ", c.cols, " scale ", c.scale, c.position ? " position" : "",
                      " dropout ", c.dropout, c.gaps ? " gaps" : ""),
       .inputs = {normal({kVocabulary, c.cols}, 1), ids,
                  c.position ? normal({kPositions, c.cols}, 2) : Tensor(),
                  c.position ? make_ids(c.ids, kPositions, false) : Tensor()},
       .function =
           [=](const Tensors& in) {
             Generator generator(kSeed);
             return Tensors{embedding(in[1], in[0],
                                      {.scale = c.scale,
                                       .position = in[2],
                                       .position_ids = in[3],
                                       .dropout = c.dropout,
                                       .generator = &generator})};
           },
       .reference = [=](const Tensors& in) { return Tensors{reference(in, c)}; }});
}

TEST(Embedding, SizesThatFillNoVector) {
  for (int64_t cols : {1, 5, 33, 128}) check({.ids = {11}, .cols = cols});
}

// The gradient of a table sorts its rows; on CUDA a block sorts 2048 of them.
TEST(Embedding, MoreRowsThanABlockSorts) { check({.ids = {4500}, .cols = 2, .position = true}); }

TEST(Embedding, ScalePositionDropoutAndGaps) {
  for (bool position : {false, true})
    for (double p : {0.0, 0.5})
      for (bool gaps : {false, true})
        check({.ids = {2, 4},
               .cols = 5,
               .scale = std::sqrt(5.0),
               .position = position,
               .dropout = p,
               .gaps = gaps});
}

TEST(Embedding, AnyRankOfIds) {
  check({.ids = {}, .position = true});
  check({.ids = {2, 2, 3}, .position = true});
  check({.ids = {0}, .position = true});
  check({.ids = {3, 0}});
}

TEST(Embedding, PaddingIdGetsNoGradient) {
  const Tensor weight = normal({4, 3}, 1).set_requires_grad(), ids = tensor<int64_t>({0, 2, 0, 1});
  const Tensor y = embedding(ids, weight, {.padding_id = 0});
  EXPECT_EQ(max_difference(y.select(0, 0), weight.select(0, 0)), 0);
  y.backward(ones({4, 3}, weight.options()));
  const std::vector<double> want = {0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0};
  EXPECT_EQ(weight.grad().to_vector<double>(), want);
}

TEST(Embedding, RowsWithoutATokenAreZero) {
  const Tensor weight = full({2, 3}, NAN), ids = full({4}, kNoToken, {.dtype = DType::i64});
  const Tensor position = full({2, 3}, NAN), position_ids = zeros({4}, {.dtype = DType::i64});
  EXPECT_EQ(max_abs(embedding(ids, weight, {.position = position, .position_ids = position_ids})), 0);
}

TEST(Embedding, TheSameTableForBoth) {
  const Tensor table = normal({5, 3}, 1).set_requires_grad(), ids = tensor<int64_t>({1, 4}),
               places = tensor<int64_t>({0, 1});
  embedding(ids, table, {.position = table, .position_ids = places}).backward(ones({2, 3}, table.options()));
  const std::vector<double> want = {1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 1, 1, 1};
  EXPECT_EQ(table.grad().to_vector<double>(), want);
}

TEST(Embedding, Errors) {
  const Tensor weight = zeros({4, 3}), ids = tensor<int64_t>({0, 1}), position = zeros({2, 3});
  expect_error<DTypeError>([&] { embedding(zeros({2}), weight); },
                           "embedding: ids are f32; they must be i64");
  EXPECT_THROW(embedding(zeros({2}, {.dtype = DType::i32}), weight), DTypeError);
  expect_error<IndexError>([&] { embedding(tensor<int64_t>({0, 4}), weight); }, "4");
  expect_error<IndexError>([&] { embedding(tensor<int64_t>({-2, 0}), weight); }, "-2");
  expect_error<ShapeError>([&] { embedding(ids, zeros({4})); },
                           "embedding: weight is [4], expected [vocabulary");
  EXPECT_THROW(embedding(ids, weight.to(DType::i64)), DTypeError);
  expect_error<ConfigError>([&] { embedding(ids, weight, {.position = position}); },
                            "position without position_ids");
  expect_error<ConfigError>([&] { embedding(ids, weight, {.position_ids = ids}); },
                            "position_ids without a position table");
  expect_error<IndexError>(
      [&] {
        embedding(ids, weight, {.position = position, .position_ids = tensor<int64_t>({0, 2})});
      },
      "2");
  expect_error<ShapeError>(
      [&] { embedding(ids, weight, {.position = position, .position_ids = tensor<int64_t>({0})}); },
      "embedding: position_ids are [1], ids [2]");
  expect_error<ShapeError>(
      [&] {
        embedding(ids, weight, {.position = zeros({2, 4}), .position_ids = ids});
      },
      "embedding: position is [2, 4], expected [positions, 3]");
  EXPECT_THROW(embedding(ids, weight, {.position = position.to(DType::f64), .position_ids = ids}),
               DTypeError);
  EXPECT_THROW(embedding(ids, weight, {.position = position, .position_ids = position.select(1, 0)}),
               DTypeError);
  for (int64_t id : {-2, 4})
    expect_error<ConfigError>(
        [&] { embedding(ids, weight, {.padding_id = id}); },
        concat("embedding: padding_id is ", id, "; it must be in [0, 4), or -1 for none"));
  EXPECT_THROW(embedding(ids, weight, {.dropout = 1}), ConfigError);
}

TEST(Embedding, ChangedIdsAreNoticed) {
  const Tensor weight = normal({4, 3}, 1).set_requires_grad(), ids = tensor<int64_t>({0, 1});
  const Tensor y = embedding(ids, weight);
  ids.fill_(3);
  EXPECT_THROW(y.backward(ones({2, 3}, weight.options())), AutogradError);
}

}  // namespace
}  // namespace heed::test
