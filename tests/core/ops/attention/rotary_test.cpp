#include <cmath>

#include <gtest/gtest.h>

#include <heed/core/ops.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

constexpr int64_t kEntries = 9;

// Angles position * 0.7^pair, in the layout that the operation wants.
Tensor table(int64_t rotated, RotaryPairing pairing, DType dtype = DType::f64) {
  const Tensor out = empty({kEntries, 2, rotated}, {.dtype = DType::f64});
  for (int64_t position = 0; position < kEntries; ++position)
    for (int64_t c = 0; c < rotated; ++c) {
      const bool half = pairing == RotaryPairing::half, first = half ? c < rotated / 2 : c % 2 == 0;
      const double angle = static_cast<double>(position) *
                           std::pow(0.7, static_cast<double>(half ? c % (rotated / 2) : c / 2));
      double* const entry = out.data<double>() + position * 2 * rotated;
      entry[c] = std::cos(angle);
      entry[rotated + c] = first ? -std::sin(angle) : std::sin(angle);
    }
  return out.to(dtype);
}

// Each pair multiplied, as a complex number, with e^(i angle).
Tensor reference(const Tensor& x, const Tensor& positions, int64_t rotated, const RotaryOptions& options) {
  const Tensor y = x.contiguous().clone();
  const int64_t cols = x.size(-1), width = cols / options.heads, rows = cols ? x.numel() / cols : 0;
  const int64_t heads = options.rotated_heads == 0 ? options.heads : options.rotated_heads;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t pair = 0; pair < rotated / 2; ++pair) {
        double* const at = y.data<double>() + row * cols + head * width;
        const bool half = options.pairing == RotaryPairing::half;
        double &a = at[half ? pair : 2 * pair], &b = at[half ? pair + rotated / 2 : 2 * pair + 1];
        const double angle = static_cast<double>(positions.contiguous().data<int64_t>()[row]) *
                             std::pow(0.7, static_cast<double>(pair));
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
  return y;
}

void check(const Shape& shape, int64_t rotated, const RotaryOptions& options) {
  const int64_t cols = shape[shape.rank() - 1];
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  const Tensor positions = remainder(arange(0, rows) * 5.0, static_cast<double>(kEntries));
  check_composed(
      {.name = concat("rotary ", shape, " of ", options.heads, " heads, ", options.rotated_heads,
                      " rotated, ", rotated, " columns, pairing ", static_cast<int>(options.pairing)),
       .inputs = {normal(shape, 1), positions},
       .function =
           [=](const Tensors& in) {
             const DType factors = in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
             return Tensors{
                 rotary(in[0], in[1], table(rotated, options.pairing, factors).to(in[0].device()), options)};
           },
       .reference = [=](const Tensors& in) { return Tensors{reference(in[0], in[1], rotated, options)}; }});
  EXPECT_EQ(cols % options.heads, 0);
}

TEST(Rotary, BothPairingsOfWidthsThatFillNoVector) {
  for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved})
    for (const int64_t width : {2, 6, 16, 34, 64})
      check({5, 3 * width}, width, {.heads = 3, .pairing = pairing});
}

TEST(Rotary, PartOfTheWidthAndSomeOfTheHeads) {
  for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved}) {
    check({4, 4 * 10}, 6, {.heads = 4, .rotated_heads = 3, .pairing = pairing});
    check({4, 4 * 32}, 16, {.heads = 4, .rotated_heads = 3, .pairing = pairing});
    check({4, 4 * 32}, 18, {.heads = 4, .rotated_heads = 3, .pairing = pairing});  // ends within a vector
    check({3, 5 * 7}, 4, {.heads = 5, .rotated_heads = 1, .pairing = pairing});
  }
}

TEST(Rotary, RanksAndEmptyBatches) {
  check({2, 3, 8}, 4, {.heads = 2});
  check({0, 8}, 8, {.heads = 1});
  check({8}, 8, {.heads = 1});
  check({300, 16}, 8, {.heads = 2});
}

// The product of a query and a key depends on the distance between them alone.
TEST(Rotary, ProductsSeeDistances) {
  for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved}) {
    const Tensor factors = table(8, pairing), q = normal({1, 8}, 1), k = normal({1, 8}, 2);
    const auto at = [&](const Tensor& x, int64_t position) {
      return rotary(x, tensor<int64_t>({position}), factors, {.pairing = pairing});
    };
    const double product = sum(at(q, 5) * at(k, 2)).item<double>();
    EXPECT_NEAR(sum(at(q, 8) * at(k, 5)).item<double>(), product, 1e-12);
    EXPECT_NEAR(sum(at(q, 3) * at(k, 0)).item<double>(), product, 1e-12);
    EXPECT_EQ(max_difference(at(q, 0), q), 0);
  }
}

TEST(Rotary, Errors) {
  const Tensor x = zeros({2, 8}, {.dtype = DType::f64}), positions = tensor<int64_t>({0, 1}),
               factors = table(4, RotaryPairing::half);
  expect_error<ConfigError>([&] { rotary(x, positions, factors, {.heads = 3}); },
                            "rotary: the 8 columns of x do not divide into 3 heads");
  expect_error<ConfigError>([&] { rotary(x, positions, factors, {.heads = 2, .rotated_heads = 3}); },
                            "rotary: rotated_heads is 3; it must be in [0, 2]");
  expect_error<ShapeError>([&] { rotary(x, tensor<int64_t>({0}), factors, {.heads = 2}); },
                           "rotary: positions are [1]; x has 2 rows");
  expect_error<ShapeError>([&] { rotary(x, positions, factors, {.heads = 4}); },
                           "rotary: table is [9, 2, 4], expected [positions, 2, rotated]");
  EXPECT_THROW(rotary(x, positions.to(DType::i32), factors, {.heads = 2}), DTypeError);
  EXPECT_THROW(rotary(x, positions, factors.to(DType::f32), {.heads = 2}), DTypeError);
  EXPECT_THROW(rotary(x.to(DType::i64), positions, factors, {.heads = 2}), DTypeError);
  EXPECT_THROW(rotary(zeros({}), positions, factors), ShapeError);
  EXPECT_THROW(rotary(x, positions, factors.clone().set_requires_grad(), {.heads = 2}), AutogradError);
  for (const int64_t wrong : {int64_t{-1}, kEntries})
    expect_error<IndexError>(
        [&] {
          rotary(x, tensor<int64_t>({0, wrong}), factors, {.heads = 2});
        },
        concat("rotary: position ", wrong, " in row 1 is outside the table of 9"));
}

TEST(Rotary, AWrongPositionOnADevice) {
  for (const Device device : devices()) {
    if (device.is_cpu()) continue;
    const Tensor factors = table(4, RotaryPairing::half, DType::f32).to(device);
    const Tensor y =
        rotary(ones({2, 8}, {.device = device}), tensor<int64_t>({1, 9}).to(device), factors, {.heads = 2});
    expect_error<IndexError>([&] { y.to(kCpu); }, "rotary: position 9 in row 1");
  }
}

}  // namespace
}  // namespace heed::test
