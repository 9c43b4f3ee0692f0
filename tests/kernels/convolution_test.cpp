#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/convolution.h>

namespace heed::test {
namespace {

template <class T>
class ConvolutionTest : public ::testing::Test {};
using Types = ::testing::Types<float, bfloat16, double>;
TYPED_TEST_SUITE(ConvolutionTest, Types);

kernels::ConvolutionSizes sizes(int64_t batch, int64_t channels, int64_t height, int64_t width,
                                int64_t outputs, int64_t groups, int64_t stride, int64_t padding) {
  return {batch,
          channels,
          height,
          width,
          outputs,
          groups,
          {.kernel = {3, 3}, .stride = {stride, stride}, .padding = {padding, padding}, .dilation = {1, 1}}};
}

// By columns: few channels, few outputs, a stride, with which sizes that it divides or not, panels that are
// full or not, several images at a time in several pieces of the outputs, and outputs in parts. By Winograd's
// transforms: panels and tiles that are not full, channels and outputs in several blocks, groups, a row of
// tiles that is cut, padding of 0 to 3.
const std::vector<kernels::ConvolutionSizes> kShapes{
    sizes(3, 4, 9, 11, 7, 1, 1, 1),    sizes(5, 6, 8, 8, 4, 2, 1, 0),      sizes(2, 40, 9, 8, 34, 1, 2, 1),
    sizes(3, 12, 7, 9, 10, 2, 2, 0),   sizes(1, 5, 3, 81, 6, 1, 2, 1),     sizes(8, 5, 28, 28, 110, 1, 2, 1),
    sizes(4, 260, 6, 5, 9, 1, 2, 1),   sizes(2, 6, 9, 10, 7, 1, 3, 1),     sizes(2, 33, 11, 14, 34, 1, 1, 1),
    sizes(9, 80, 7, 7, 40, 1, 1, 0),   sizes(1, 64, 10, 140, 48, 1, 1, 2), sizes(2, 66, 11, 16, 70, 2, 1, 3),
    sizes(4, 70, 10, 10, 150, 1, 1, 1)};

// Small whole numbers: every sum of theirs is exact in whatever order, and so are the quarters of Winograd's
// transforms.
template <class T>
std::vector<T> whole_numbers(int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(T(static_cast<float>(static_cast<int>(engine() % 7) - 3)));
  return values;
}

template <class T>
struct Gradients {
  std::vector<T> y, gx;
  std::vector<accumulator_t<T>> gweight;
};

template <class T>
struct Operands {
  const kernels::ConvolutionSizes& s;
  std::vector<T> x, weight, bias, gy;
  Gradients<T> before;  // to which the gradients are added

  explicit Operands(const kernels::ConvolutionSizes& s)
      : s(s),
        x(whole_numbers<T>(s.batch * s.channels * s.height * s.width, 1)),
        weight(whole_numbers<T>(s.outputs * s.depth(), 2)),
        bias(whole_numbers<T>(s.outputs, 3)),
        gy(whole_numbers<T>(s.batch * s.outputs * s.pixels(), 4)),
        before{whole_numbers<T>(std::ssize(gy), 5), whole_numbers<T>(std::ssize(x), 6),
               whole_numbers<accumulator_t<T>>(std::ssize(weight), 7)} {}

  Gradients<T> computed(bool accumulate) const {
    Gradients<T> out = before;
    cpu::convolution_forward<T>({s, x.data(), weight.data(), bias.data(), out.y.data()});
    cpu::convolution_backward<T>(
        {s, gy.data(), x.data(), weight.data(), out.gx.data(), out.gweight.data(), accumulate, accumulate});
    return out;
  }

  /// The same by the definition.
  Gradients<T> defined(bool accumulate) const {
    std::vector<double> y, gx(x.size()), gweight(weight.size());
    for (size_t i = 0; accumulate && i < gx.size(); ++i) gx[i] = static_cast<double>(before.gx[i]);
    for (size_t i = 0; accumulate && i < gweight.size(); ++i) gweight[i] = before.gweight[i];
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t o = 0; o < s.outputs; ++o)
        for (int64_t i = 0; i < s.out_height(); ++i)
          for (int64_t j = 0; j < s.out_width(); ++j) {
            const double g = static_cast<double>(gy[y.size()]);
            double sum = static_cast<double>(bias[static_cast<size_t>(o)]);
            for_each_term(n, o, i, j, [&](size_t in, size_t tap) {
              const double pixel = static_cast<double>(x[in]), w = static_cast<double>(weight[tap]);
              sum += pixel * w;
              gx[in] += g * w;
              gweight[tap] += g * pixel;
            });
            y.push_back(sum);
          }
    Gradients<T> out;
    for (const double v : y) out.y.push_back(T(static_cast<float>(v)));
    for (const double v : gx) out.gx.push_back(T(static_cast<float>(v)));
    for (const double v : gweight) out.gweight.push_back(static_cast<accumulator_t<T>>(v));
    return out;
  }

  /// Calls f(pixel of x, element of the weight) for each product of a sum.
  template <class F>
  void for_each_term(int64_t n, int64_t o, int64_t i, int64_t j, const F& f) const {
    const kernels::Window& w = s.window;
    const int64_t first = o / s.group_outputs() * s.group_channels();
    for (int64_t c = 0; c < s.group_channels(); ++c)
      for (int64_t k = 0; k < w.kernel[0]; ++k)
        for (int64_t l = 0; l < w.kernel[1]; ++l) {
          const int64_t row = i * w.stride[0] - w.padding[0] + k, col = j * w.stride[1] - w.padding[1] + l;
          if (row < 0 || row >= s.height || col < 0 || col >= s.width) continue;
          f(static_cast<size_t>(((n * s.channels + first + c) * s.height + row) * s.width + col),
            static_cast<size_t>(((o * s.group_channels() + c) * w.kernel[0] + k) * w.kernel[1] + l));
        }
  }
};

TYPED_TEST(ConvolutionTest, SumsAreExactWhereTermsAre) {
  for (const kernels::ConvolutionSizes& s : kShapes) {
    const Operands<TypeParam> operands(s);
    for (const bool accumulate : {false, true}) {
      const Gradients<TypeParam> got = operands.computed(accumulate), want = operands.defined(accumulate);
      const auto text = ::testing::Message()
                        << s.channels << " channels, " << s.outputs << " outputs, padding "
                        << s.window.padding[0] << ", accumulate " << accumulate;
      EXPECT_TRUE(got.y == want.y) << text;
      EXPECT_TRUE(got.gx == want.gx) << text;
      EXPECT_TRUE(got.gweight == want.gweight) << text;
    }
  }
}

}  // namespace
}  // namespace heed::test
