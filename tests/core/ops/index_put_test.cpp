// Rows written in place by index.
#include <heed/core/autograd/autograd.h>
#include <heed/core/index_put.h>
#include <heed/kernels/embedding.h>

#include "expect_error.h"
#include "reference.h"

namespace heed::test {
namespace {

constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::bf16};

// Each row of the source from memory without gaps and from a part of wider rows.
TEST(IndexPutInPlace, RowsTakeTheirPlaces) {
  const std::vector<int64_t> index{4, kNoToken, 0, 5, kNoToken, 2};
  const auto count = std::ssize(index);
  for (const DType dtype : kDTypes)
    for (const Device device : devices(dtype))
      for (const int64_t width : {1, 7, 8, 300}) {
        SCOPED_TRACE(concat(dtype, " ", device, " ", width));
        const Tensor before = normal({7, width}, 1).to(dtype),
                     wide = normal({count, width + 12}, 2).to(dtype).to(device);
        for (const int64_t first : {0, 4, 5}) {
          const Tensor source = wide.slice(1, first, first + width), x = before.clone().to(device);
          index_put_(x, tensor(index, {count}, device), source);
          const Tensor want = before.clone();
          for (int64_t i = 0; i < count; ++i)
            if (const int64_t row = index[static_cast<size_t>(i)]; row != kNoToken)
              want.select(0, row).copy_(source.select(0, i));
          EXPECT_TRUE(array_equal(x.to(kCpu), want)) << first;
        }
      }
}

TEST(IndexPutInPlace, RowsOfSeveralAxesAndOfNone) {
  const Tensor x = zeros({3, 2, 2}), source = arange(1, 9).to(DType::f32).reshape({2, 2, 2}),
               index = tensor<int64_t>({2, 0});
  index_put_(x, index, source.transpose(1, 2));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{5, 7, 6, 8, 0, 0, 0, 0, 1, 3, 2, 4}));
  const Tensor numbers = zeros({3});
  index_put_(numbers, index, tensor<float>({7, 9}));
  EXPECT_EQ(numbers.to_vector<float>(), (std::vector<float>{9, 0, 7}));
  index_put_(numbers, tensor(std::vector<int64_t>{}, {0}), zeros({0}));
  EXPECT_EQ(numbers.to_vector<float>(), (std::vector<float>{9, 0, 7}));
}

TEST(IndexPutInPlace, TheWriteIsNoted) {
  const Tensor x = zeros({3, 2});
  const int64_t version = x.version();
  index_put_(x, tensor<int64_t>({1}), ones({1, 2}));
  EXPECT_GT(x.version(), version);
}

TEST(IndexPutInPlace, Errors) {
  const Tensor x = zeros({4, 2}), index = tensor<int64_t>({1, 3}), source = ones({2, 2});
  const auto put = [](const Tensor& to, const Tensor& at, const Tensor& from) {
    return [=] { index_put_(to, at, from); };
  };
  expect_error<IndexError>(put(x, tensor<int64_t>({1, 4}), source),
                           {"index_put: index 4 at element 1", "not in [0, 3]"});
  expect_error<IndexError>(put(x, tensor<int64_t>({-2, 1}), source), {"index -2 at element 0"});
  expect_error<ShapeError>(put(x, index, ones({3, 2})), {"index_put_", "source of [3, 2]"});
  expect_error<ShapeError>(put(x, index, ones({2, 3})), {"source of [2, 3]", "tensor of [4, 2]"});
  expect_error<ShapeError>(put(x, index.reshape({2, 1}), source), {"an index of [2, 1]"});
  expect_error<ShapeError>(put(x.transpose(0, 1), index, ones({2, 4})), {"without gaps"});
  expect_error<DTypeError>(put(x, index, source.to(DType::f64)), {"index_put_", "f32 and f64"});
  expect_error<DTypeError>(put(x, index.to(DType::i32), source), {"the index is i32"});
  expect_error<DTypeError>(put(x.to(DType::i64), index, source.to(DType::i64)), {"floating-point"});
  expect_error<AliasError>(put(x, index, x.slice(0, 0, 2)), {"in the memory that is written"});
  const Tensor leaf = ones({2, 2}).set_requires_grad();
  expect_error<AutogradError>(put(x, index, leaf), {"the source requires a gradient"});
  EXPECT_EQ(max_abs(x.to(DType::f64)), 0) << "nothing has been written";
  const NoGrad no_grad;
  index_put_(x, index, leaf);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 0, 1, 1, 0, 0, 1, 1}));
}

}  // namespace
}  // namespace heed::test
