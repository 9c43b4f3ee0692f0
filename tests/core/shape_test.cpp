#include <limits>

#include <gtest/gtest.h>

#include <heed/core/creation.h>
#include <heed/core/shape.h>
#include <heed/core/tensor_impl.h>

#include "ops/reference.h"

namespace heed::test {
namespace {

TEST(Shape, HoldsUpToEightSizes) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ((Shape{2, 3}).rank(), 2);
  EXPECT_EQ((Shape{2, 3})[1], 3);
  EXPECT_EQ((Shape{1, 1, 1, 1, 1, 1, 1, 1}).rank(), 8);
  expect_error<ShapeError>([] { Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }, {"at most 8", "got 9"});
  EXPECT_TRUE((Shape{2, 3}) == (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_EQ(concat(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(concat(Shape{}), "[]");
}

TEST(Shape, IndicesAreCheckedAndCountFromTheEnd) {
  Shape shape = {2, 3, 5};
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape[-3], 2);
  shape[-1] = 7;
  EXPECT_EQ(shape, (Shape{2, 3, 7}));
  for (const int64_t axis : {int64_t{3}, int64_t{-4}, int64_t{1} << 32, std::numeric_limits<int64_t>::min()})
    expect_error<IndexError>([&] { static_cast<void>(shape[axis]); }, {concat("axis ", axis), "[-3, 2]"});
  expect_error<IndexError>([] { static_cast<void>(Shape()[0]); }, {"rank 0"});
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(x.shape()[-1], x.size(-1));
  EXPECT_EQ(x.strides()[-2], 3);
  expect_error<IndexError>([&] { x.size(2); }, {"axis 2", "[-2, 1]"});
}

TEST(Shape, InsertAppendErase) {
  Shape shape = {2, 3};
  shape.insert(0, 5);
  shape.append(7);
  shape.insert(2, 9);
  EXPECT_EQ(shape, (Shape{5, 2, 9, 3, 7}));
  shape.erase(2);
  shape.erase(3);
  EXPECT_EQ(shape, (Shape{5, 2, 3}));
  Shape full = {1, 1, 1, 1, 1, 1, 1, 1};
  expect_error<ShapeError>([&] { full.append(1); }, {"at most 8"});
}

TEST(Shape, NumberOfElements) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).numel(), 0);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ((Shape{most}).numel(), most);
  expect_error<ShapeError>(
      [] {
        (Shape{int64_t{1} << 31, int64_t{1} << 31, 2}).numel();
      },
      {"[2147483648, 2147483648, 2]", "2^63"});
  expect_error<ShapeError>([] { (Shape{int64_t{1} << 62, 4, 0}).numel(); }, {"2^63"});
  expect_error<ShapeError>([] { (Shape{0, int64_t{1} << 62, 4}).numel(); }, {"2^63"});
  expect_error<ShapeError>([] { (Shape{0, -1}).numel(); }, {"negative size", "[0, -1]"});
  expect_error<ShapeError>([] { (Shape{2, -1}).numel(); }, {"negative size", "[2, -1]"});
}

TEST(Shape, TensorsThatCannotBe) {
  expect_error<ShapeError>([] { empty({int64_t{1} << 31, int64_t{1} << 31, 2}); }, {"2^63"});
  expect_error<ShapeError>([] { empty({int64_t{1} << 61}); }, {"bytes"});
  expect_error<ShapeError>([] { zeros({-3}); }, {"negative size", "[-3]"});
}

TEST(Shape, ContiguousStrides) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Shape());
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Shape{4, 4, 1}));
}

TEST(Shape, Broadcasting) {
  EXPECT_EQ(broadcast_shapes({2, 3}, {3}, "add"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({2, 1}, {1, 5}, "add"), (Shape{2, 5}));
  EXPECT_EQ(broadcast_shapes({}, {4}, "add"), (Shape{4}));
  EXPECT_EQ(broadcast_shapes({0}, {1}, "add"), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({1}, {0}, "add"), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {2, 1}, "add"), (Shape{4, 2, 3}));
  expect_error<ShapeError>(
      [] {
        broadcast_shapes({2, 3}, {4}, "add");
      },
      {"add", "[2, 3]", "[4]", "axis -1", "3 and 4"});
  expect_error<ShapeError>([] { broadcast_shapes({0}, {2}, "add"); }, {"0 and 2"});
}

TEST(Shape, AxesFromTheEnd) {
  EXPECT_EQ(normalize_axis(0, 3, "sum"), 0);
  EXPECT_EQ(normalize_axis(-1, 3, "sum"), 2);
  EXPECT_EQ(normalize_axis(-3, 3, "sum"), 0);
  expect_error<IndexError>([] { normalize_axis(3, 3, "sum"); }, {"sum", "axis 3", "[-3, 2]", "rank 3"});
  expect_error<IndexError>([] { normalize_axis(-4, 3, "sum"); }, {"axis -4"});
  expect_error<IndexError>([] { normalize_axis(0, 0, "sum"); }, {"rank 0"});
  expect_error<IndexError>([] { normalize_axis(std::numeric_limits<int64_t>::min(), 3, "sum"); }, {"sum"});
}

TEST(Shape, IsContiguousIgnoresAxesOfSizeOne) {
  const Tensor x = zeros({4, 6});
  EXPECT_TRUE(make_view(x, {1, 6}, {77, 1}, 0).is_contiguous());
  EXPECT_TRUE(make_view(x, {4, 1, 6}, {6, 3, 1}, 0).is_contiguous());
  EXPECT_FALSE(make_view(x, {4, 3}, {6, 1}, 0).is_contiguous());
  EXPECT_FALSE(make_view(x, {6, 4}, {1, 6}, 0).is_contiguous());
  EXPECT_TRUE(make_view(x, {0, 4}, {1, 6}, 0).is_contiguous());
}

}  // namespace
}  // namespace heed::test
