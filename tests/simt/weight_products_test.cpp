// The gradients of many small weights and their biases by one launch, against plain loops in double.
#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/linear.h>

#include "device_buffer.h"
#include "device_test.h"

namespace heed::cuda {
namespace {

using heed::testing::DeviceBuffer;

struct Size {
  int64_t rows, in, out;
  bool biased, accumulate;  // accumulate: the weight's; the bias's is the other way round
};

// Numbers of which bf16 has all, none of them like its neighbours.
template <class T>
std::vector<T> numbers(int64_t count, int salt) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = T(static_cast<float>((i * 37 + static_cast<size_t>(salt) * 11) % 61) / 16.0f - 1.5f);
  return values;
}

// What an element was, if it is added to, and the sum of `rows` terms.
template <class Term>
void expect_sum(float got, bool accumulate, float before, int64_t rows, const Term& term) {
  double sum = accumulate ? static_cast<double>(before) : 0.0, size = std::abs(sum);
  for (int64_t row = 0; row < rows; ++row) {
    sum += term(row);
    size += std::abs(term(row));
  }
  ASSERT_NEAR(got, sum, 1e-6 * size);
}

template <class T>
class WeightProducts : public ::testing::Test {};
TYPED_TEST_SUITE(WeightProducts, heed::testing::KernelTypes);

TYPED_TEST(WeightProducts, AreSumsOverRows) {
  using T = TypeParam;
  const std::vector<Size> few{{37, 8, 72, true, false}, {70, 66, 8, true, true},  {200, 64, 64, true, false},
                              {40, 7, 5, true, false},  {0, 3, 5, true, false},   {1, 1, 1, false, true},
                              {5, 16, 0, true, false},  {33, 130, 65, true, true}};
  for (const std::vector<Size>& sizes : {few, std::vector<Size>(60, {3, 2, 2, true, true})}) {
    std::vector<std::unique_ptr<DeviceBuffer<T>>> g, x;
    std::vector<std::unique_ptr<DeviceBuffer<float>>> gweight, gbias;
    std::vector<kernels::WeightProduct<T>> products;
    for (const Size& s : sizes) {
      g.push_back(std::make_unique<DeviceBuffer<T>>(numbers<T>(s.rows * s.out, 1)));
      x.push_back(std::make_unique<DeviceBuffer<T>>(numbers<T>(s.rows * s.in, 2)));
      gweight.push_back(std::make_unique<DeviceBuffer<float>>(numbers<float>(s.out * s.in, 3)));
      gbias.push_back(std::make_unique<DeviceBuffer<float>>(numbers<float>(s.out, 4)));
      products.push_back({g.back()->data(), x.back()->data(), gweight.back()->data(),
                          s.biased ? gbias.back()->data() : nullptr, s.accumulate, !s.accumulate, s.rows,
                          s.in, s.out});
    }
    weight_products(kernels::WeightProducts<T>{products});
    for (size_t i = 0; i < sizes.size(); ++i) {
      SCOPED_TRACE(i);
      const Size& s = sizes[i];
      const std::vector<T> gs = numbers<T>(s.rows * s.out, 1), xs = numbers<T>(s.rows * s.in, 2);
      const auto at = [](const std::vector<T>& values, int64_t place) {
        return static_cast<double>(static_cast<float>(values[static_cast<size_t>(place)]));
      };
      const std::vector<float> weight = gweight[i]->get(), weight_before = numbers<float>(s.out * s.in, 3);
      const std::vector<float> bias = gbias[i]->get(), bias_before = numbers<float>(s.out, 4);
      for (int64_t o = 0; o < s.out; ++o) {
        for (int64_t c = 0; c < s.in; ++c) {
          const size_t place = static_cast<size_t>(o * s.in + c);
          expect_sum(weight[place], s.accumulate, weight_before[place], s.rows,
                     [&](int64_t row) { return at(gs, row * s.out + o) * at(xs, row * s.in + c); });
        }
        const size_t place = static_cast<size_t>(o);
        if (s.biased)
          expect_sum(bias[place], !s.accumulate, bias_before[place], s.rows,
                     [&](int64_t row) { return at(gs, row * s.out + o); });
        else
          EXPECT_EQ(bias[place], bias_before[place]);
      }
    }
    heed::testing::kernel_cases.count += static_cast<int>(sizes.size());
  }
}

}  // namespace
}  // namespace heed::cuda
