// The CUDA norms against loops in double precision, under every schedule of the emulator.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/philox.h>
#include <heed/kernels/norm.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/simt/host/emulator.h>

#include "device_buffer.h"
#include "device_test.h"

namespace heed {
namespace {

using testing::bytes_of;
using testing::DeviceBuffer;

struct Case {
  int64_t rows, cols;
  bool weight = true, bias = true;               // given
  bool gx = true, gweight = true, gbias = true;  // wanted
  bool accumulate = false;
  size_t misaligned = 0;  // elements by which x, y, gy and gx are off a 16-byte boundary
  NormKind kind = NormKind::layer;

  bool layer() const { return kind == NormKind::layer; }
};

// An RMS norm has no bias.
Case rms(Case c) {
  c.kind = NormKind::rms;
  c.bias = c.gbias = false;
  return c;
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << (c.layer() ? "layer " : "rms ") << c.rows << "x" << c.cols << (c.weight ? "" : " no weight")
       << (c.bias ? "" : " no bias") << (c.gx ? "" : " no gx") << (c.gweight ? "" : " no gweight")
       << (c.gbias ? "" : " no gbias") << (c.accumulate ? " accumulate" : "")
       << (c.misaligned ? " misaligned" : "");
}

template <class T>
std::vector<T> random_values(int64_t count, uint32_t seed, float mean = 0.0f) {
  std::vector<T> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    const Philox4 bits = philox(static_cast<uint32_t>(i), 0, 0, 0, seed, 0);
    float sum = mean - 2.0f;  // of four uniforms: near enough to normal
    for (uint32_t word : bits.word) sum += static_cast<float>(word >> 8) * 0x1p-24f;
    out[i] = T(sum);
  }
  return out;
}

// Everything in and out of both directions.
template <class T>
struct Data {
  std::vector<T> x, weight, bias, gy, y, gx;
  std::vector<float> mean, rstd, gweight, gbias;
};

template <class T>
Data<T> make_inputs(const Case& c) {
  const int64_t count = c.rows * c.cols;
  Data<T> d;
  d.x = random_values<T>(count, 1, 0.7f);
  d.gy = random_values<T>(count, 2);
  if (c.weight) d.weight = random_values<T>(c.cols, 3, 1.0f);
  if (c.bias) d.bias = random_values<T>(c.cols, 4);
  if (c.accumulate) {
    d.gx = random_values<T>(count, 5);
    d.gweight = random_values<float>(c.cols, 6);
    if (c.gbias) d.gbias = random_values<float>(c.cols, 7);
  }
  return d;
}

constexpr double kEps = 1e-5;

// What was asked for, computed in A from the inputs and rounded to nothing: the results of all elements in
// order y, mean, rstd, gx, gweight, gbias.
template <class A, class T>
std::vector<std::vector<A>> reference(const Case& c, const Data<T>& in) {
  const size_t rows = static_cast<size_t>(c.rows), cols = static_cast<size_t>(c.cols);
  std::vector<A> y(rows * cols), mean(rows), rstd(rows), gx(rows * cols), gweight(cols), gbias(cols);
  for (size_t r = 0; r < rows; ++r) {
    A sum = 0, squares = 0, sum_g = 0, sum_gn = 0;
    const auto x = [&](size_t i) { return static_cast<A>(static_cast<float>(in.x[r * cols + i])); };
    const auto gy = [&](size_t i) { return static_cast<A>(static_cast<float>(in.gy[r * cols + i])); };
    const auto weight = [&](size_t i) {
      return c.weight ? static_cast<A>(static_cast<float>(in.weight[i])) : A(1);
    };
    for (size_t i = 0; c.layer() && i < cols; ++i) sum += x(i);
    mean[r] = sum / static_cast<A>(cols);
    for (size_t i = 0; i < cols; ++i) squares += (x(i) - mean[r]) * (x(i) - mean[r]);
    rstd[r] = 1 / std::sqrt(squares / static_cast<A>(cols) + static_cast<A>(kEps));
    for (size_t i = 0; i < cols; ++i) {
      const A n = (x(i) - mean[r]) * rstd[r];
      y[r * cols + i] = n * weight(i) + (c.bias ? static_cast<A>(static_cast<float>(in.bias[i])) : A(0));
      if (c.layer()) sum_g += gy(i) * weight(i);
      sum_gn += gy(i) * weight(i) * n;
      gweight[i] += gy(i) * n;
      gbias[i] += gy(i);
    }
    for (size_t i = 0; i < cols; ++i) {
      const A n = (x(i) - mean[r]) * rstd[r];
      gx[r * cols + i] =
          (gy(i) * weight(i) - sum_g / static_cast<A>(cols) - n * (sum_gn / static_cast<A>(cols))) * rstd[r];
    }
  }
  if (c.accumulate) {
    for (size_t i = 0; i < rows * cols; ++i) gx[i] += static_cast<A>(static_cast<float>(in.gx[i]));
    for (size_t i = 0; i < cols; ++i) gweight[i] += static_cast<A>(in.gweight[i]);
    for (size_t i = 0; i < in.gbias.size(); ++i) gbias[i] += static_cast<A>(in.gbias[i]);
  }
  return {y, mean, rstd, gx, gweight, gbias};
}

// Without results.
template <class T>
kernels::NormForward<T> forward_args(NormKind kind, const T* x, const T* weight, const T* bias, int64_t rows,
                                     int64_t cols, double eps = kEps) {
  kernels::NormForward<T> args{};
  args.kind = kind;
  args.x = x;
  args.weight = weight;
  args.bias = bias;
  args.rows = rows;
  args.cols = cols;
  args.eps = eps;
  return args;
}

template <class T>
kernels::NormBackward<T> backward_args(NormKind kind, const T* gy, const T* x, const T* weight,
                                       const float* mean, const float* rstd, int64_t rows, int64_t cols) {
  kernels::NormBackward<T> args{};
  args.kind = kind;
  args.gy = gy;
  args.sum = x;
  args.weight = weight;
  args.mean = mean;
  args.rstd = rstd;
  args.rows = rows;
  args.cols = cols;
  return args;
}

template <class T>
Data<T> run(const Case& c, const Data<T>& in) {
  const size_t rows = static_cast<size_t>(c.rows), cols = static_cast<size_t>(c.cols), count = rows * cols;
  DeviceBuffer<T> x(count, c.misaligned), gy(count, c.misaligned), y(count, c.misaligned),
      gx(c.gx ? count : 0, c.misaligned);
  DeviceBuffer<T> weight(in.weight), bias(in.bias);
  DeviceBuffer<float> mean(c.layer() ? rows : 0), rstd(rows), gweight(c.gweight ? cols : 0),
      gbias(c.gbias ? cols : 0);
  x.set(in.x);
  gy.set(in.gy);
  if (c.accumulate && c.gx) gx.set(in.gx);
  if (c.accumulate && c.gweight) gweight.set(in.gweight);
  if (c.accumulate && c.gbias) gbias.set(in.gbias);
  auto forward = forward_args<T>(c.kind, x.data(), weight.data(), bias.data(), c.rows, c.cols);
  forward.y = y.data();
  forward.mean = mean.data();
  forward.rstd = rstd.data();
  cuda::norm_forward(forward);
  auto backward =
      backward_args<T>(c.kind, gy.data(), x.data(), weight.data(), mean.data(), rstd.data(), c.rows, c.cols);
  backward.gx = gx.data();
  backward.gweight = gweight.data();
  backward.gbias = gbias.data();
  backward.accumulate_x = backward.accumulate_weight = backward.accumulate_bias = c.accumulate;
  cuda::norm_backward(backward);
  cuda::synchronize(0);
  Data<T> out;
  out.y = y.get();
  out.gx = gx.get();
  out.mean = mean.get();
  out.rstd = rstd.get();
  out.gweight = gweight.get();
  out.gbias = gbias.get();
  return out;
}

// Twice the error of the plain float loops, plus two units in the last place of the largest value.
template <class Stored>
void expect_near(const char* name, const std::vector<Stored>& got, const std::vector<double>& exact,
                 const std::vector<float>& plain, double epsilon) {
  ASSERT_EQ(got.size(), exact.size()) << name;
  double error = 0, plain_error = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_FALSE(std::isnan(static_cast<float>(got[i]))) << name << "[" << i << "] was never written";
    error = std::max(error, std::abs(static_cast<double>(static_cast<float>(got[i])) - exact[i]));
    plain_error =
        std::max(plain_error, std::abs(static_cast<double>(static_cast<float>(Stored(plain[i]))) - exact[i]));
    largest = std::max(largest, std::abs(exact[i]));
  }
  EXPECT_LE(error, 2 * plain_error + 2 * epsilon * largest) << name;
}

template <class T>
void check_case(const Case& c) {
  const Data<T> in = make_inputs<T>(c);
  const auto exact = reference<double>(c, in);
  const auto plain = reference<float>(c, in);
  const double f32 = std::numeric_limits<float>::epsilon();
  const double t = sizeof(T) == 2 ? 0x1p-8 : f32;

  testing::kernel_cases.count += 2;  // forward and backward
  std::vector<unsigned char> first;
  testing::each_schedule([&](const std::string& schedule) {
    SCOPED_TRACE(schedule);
    const Data<T> out = run<T>(c, in);
    std::vector<unsigned char> bits = bytes_of(out.y);
    for (const auto& more : {bytes_of(out.mean), bytes_of(out.rstd), bytes_of(out.gx), bytes_of(out.gweight),
                             bytes_of(out.gbias)})
      bits.insert(bits.end(), more.begin(), more.end());
    if (!first.empty()) {
      EXPECT_EQ(bits, first) << "the results depend on the schedule";
      return;
    }
    first = bits;
    expect_near("y", out.y, exact[0], plain[0], t);
    if (c.layer()) expect_near("mean", out.mean, exact[1], plain[1], f32);
    expect_near("rstd", out.rstd, exact[2], plain[2], f32);
    if (c.gx) expect_near("gx", out.gx, exact[3], plain[3], t);
    if (c.gweight) expect_near("gweight", out.gweight, exact[4], plain[4], f32);
    if (c.gbias) expect_near("gbias", out.gbias, exact[5], plain[5], f32);
  });
}

class Norm : public ::testing::TestWithParam<Case> {};

TEST_P(Norm, Float) { check_case<float>(GetParam()); }
TEST_P(Norm, Bfloat16) { check_case<bfloat16>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         ::testing::Values(Case{1, 1}, Case{3, 1}, Case{5, 2}, Case{7, 8}, Case{4, 31},
                                           Case{9, 32}, Case{6, 33}, Case{2, 100}, Case{17, 128},
                                           Case{5, 264}, Case{9, 768}, Case{3, 1023}, Case{5, 1024},
                                           Case{3, 1025}, Case{2, 1032}, Case{3, 4099}, Case{2, 8192},
                                           Case{1, 8193}, Case{9, 8200}, Case{2, 16392}, Case{1030, 4}));

// Rows that groups of threads take one after another: by vectors, which are asked for early, and without.
INSTANTIATE_TEST_SUITE_P(MoreRowsThanGroups, Norm,
                         ::testing::Values(Case{16901, 8}, rms({16901, 8}), Case{135, 1025}));

INSTANTIATE_TEST_SUITE_P(
    Options, Norm,
    ::testing::Values(
        Case{5, 40, false, false}, Case{5, 40, true, false}, Case{5, 1056, false, true},
        Case{5, 40, true, true, false, true, true}, Case{5, 40, true, true, true, false, false},
        Case{5, 40, true, true, true, true, false}, Case{5, 40, true, true, true, false, true},
        Case{5, 40, true, true, true, true, true, true}, Case{6, 1056, true, true, true, true, true, true},
        Case{3, 8224, true, true, true, true, true, true}, Case{3, 8224, true, true, false, true, true},
        Case{2, 8224, true, true, true, false, false}, Case{5, 40, true, true, true, true, true, false, 1},
        Case{3, 2048, true, true, true, true, true, true, 3}));

INSTANTIATE_TEST_SUITE_P(RMS, Norm,
                         ::testing::Values(rms({1, 1}), rms({5, 2}), rms({7, 8}), rms({9, 32}), rms({6, 33}),
                                           rms({17, 128}), rms({300, 128}), rms({9, 768}), rms({5, 1024}),
                                           rms({3, 1025}), rms({3, 4099}), rms({2, 8192}), rms({9, 8200}),
                                           rms({5, 40, false}), rms({5, 40, true, true, false, true}),
                                           rms({5, 40, true, true, true, false}),
                                           rms({6, 1056, true, true, true, true, true, true}),
                                           rms({3, 8224, true, true, true, true, true, true}),
                                           rms({3, 2048, true, true, true, true, true, true, 3})));

// In every second row squares overflow, and sums of numbers of one sign. The others' rstd is below 1.
template <class T>
void check_large(const Case& c, double level, double low) {
  const int64_t cols = c.cols;
  SCOPED_TRACE(std::to_string(cols) + " columns of " + std::to_string(level) + " from " +
               std::to_string(low) + (c.layer() ? "" : ", RMS"));
  Data<T> in = make_inputs<T>(c);
  for (int64_t i = 0; i < c.rows * cols; ++i) {
    const double unit = philox(static_cast<uint32_t>(i), 0, 0, 0, 9, 0).word[0] * 0x1p-32;
    T& x = in.x[static_cast<size_t>(i)];
    x = i / cols % 2 == 1 ? T(static_cast<float>((low + (0.99 - low) * unit) * level))
                          : T(4 * static_cast<float>(x));
  }
  const auto exact = reference<double>(c, in);
  const Data<T> out = run<T>(c, in);
  const double f32 = 256 * double{std::numeric_limits<float>::epsilon()},
               t = f32 + (sizeof(T) == 2 ? 0x1p-8 : 0.0);
  const auto expect = [&](const char* name, const auto& got, const std::vector<double>& right,
                          double relative, size_t row_size) {
    for (size_t row = 0; row < right.size(); row += row_size) {
      double size = 0;
      for (size_t i = row; i < row + row_size; ++i) size = std::max(size, std::abs(right[i]));
      for (size_t i = row; i < row + row_size; ++i)
        ASSERT_NEAR(static_cast<float>(got[i]), right[i], relative * size + 1e-44) << name << " " << i;
    }
  };
  const size_t n = static_cast<size_t>(cols);
  expect("y", out.y, exact[0], t, n);
  expect("rstd", out.rstd, exact[2], f32, 1);
  for (size_t i = 0; i < out.gx.size(); ++i)  // a difference of terms of this size
    ASSERT_NEAR(static_cast<float>(out.gx[i]), exact[3][i], t * 4 * exact[2][i / n] + 1e-44) << "gx " << i;
  expect("gweight", out.gweight, exact[4], f32, n);
  if (c.layer()) expect("gbias", out.gbias, exact[5], f32, n);
  for (size_t r = 0; r < out.mean.size(); ++r)
    EXPECT_NEAR(out.mean[r], exact[1][r], f32 * (r % 2 == 1 ? level : 1)) << r;
}

TEST(NormNumerics, RowsUpToTheLargestNumber) {
  for (const int64_t cols : {2, 33, 264, 1025, 8200, 8201})
    for (const double level : {1e18, 3e19, 3.3e38})  // sums of squares overflow, squares, and sums
      for (const double low : {-0.99, 0.4}) {
        for (const Case& c : {Case{3, cols}, rms({3, cols})}) {
          check_large<float>(c, level, low);
          check_large<bfloat16>(c, level, low);
        }
      }
}

TEST(NormNumerics, EqualElementsGiveTheBias) {
  for (const size_t cols : {5u, 33u, 300u, 8200u, 8201u})
    for (const float level : {0.0f, 1.0f, 3e38f}) {
      const DeviceBuffer<float> x(std::vector<float>(cols, level)), bias(std::vector<float>(cols, 0.25f));
      DeviceBuffer<float> y(cols), mean(1), rstd(1);
      auto args =
          forward_args<float>(NormKind::layer, x.data(), nullptr, bias.data(), 1, static_cast<int64_t>(cols));
      args.y = y.data();
      args.mean = mean.data();
      args.rstd = rstd.data();
      cuda::norm_forward(args);
      EXPECT_EQ(y.get(), std::vector<float>(cols, 0.25f)) << level;
      EXPECT_EQ(mean.get()[0], level);
      EXPECT_FLOAT_EQ(rstd.get()[0], static_cast<float>(1 / std::sqrt(kEps)));
    }
}

TEST(NormNumerics, WhatIsNotFiniteStaysInItsRow) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float wrong : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()})
    for (const Case& c : {Case{3, 33}, Case{3, 300}, Case{3, 8201}, rms({3, 33}), rms({3, 300})}) {
      const int64_t cols = c.cols;
      Data<float> in = make_inputs<float>(c);
      const Data<float> sound = run<float>(c, in);
      in.x[static_cast<size_t>(cols) + 7] = wrong;
      const Data<float> out = run<float>(c, in);
      for (size_t i = 0; i < out.y.size(); ++i) {
        if (i / static_cast<size_t>(cols) == 1)
          ASSERT_TRUE(std::isnan(out.y[i]) && std::isnan(out.gx[i])) << i;
        else
          ASSERT_TRUE(out.y[i] == sound.y[i] && out.gx[i] == sound.gx[i]) << i;
      }
    }
}

TEST(NormEmpty, NoRowsLaunchNothingAndGiveZeroSums) {
  const uint64_t launches = emulator::stats().launches;
  DeviceBuffer<float> gweight(7), gbias(std::vector<float>(7, 2.0f));
  kernels::NormForward<float> forward{};
  kernels::NormBackward<float> backward{};
  forward.cols = backward.cols = 7;
  cuda::norm_forward(forward);
  backward.gweight = gweight.data();
  backward.gbias = gbias.data();
  backward.accumulate_bias = true;
  cuda::norm_backward(backward);
  EXPECT_EQ(gweight.get(), std::vector<float>(7, 0.0f));
  EXPECT_EQ(gbias.get(), std::vector<float>(7, 2.0f));
  gweight.set(std::vector<float>(7, 3.0f));
  backward.gbias = nullptr;
  backward.accumulate_weight = true;
  cuda::norm_backward(backward);
  EXPECT_EQ(gweight.get(), std::vector<float>(7, 3.0f));
  EXPECT_EQ(emulator::stats().launches, launches);
}

// So many rows, too long to be kept, that a thread of the sums over rows takes more than one. All values are
// small integers, so the sums are exact.
TEST(NormSums, ManyLongRows) {
  const size_t rows = 530, cols = 8193;
  std::vector<float> x(rows * cols), gy(rows * cols), gweight(cols), gbias(cols);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) {
      const size_t i = r * cols + c;
      x[i] = static_cast<float>((r + c) % 3);
      gy[i] = static_cast<float>((2 * r + c) % 5) - 1.0f;
      gweight[c] += gy[i] * (x[i] - 1.0f);
      gbias[c] += gy[i];
    }
  const DeviceBuffer<float> x_there(x), gy_there(gy), mean(std::vector<float>(rows, 1.0f)),
      rstd(std::vector<float>(rows, 1.0f)), gweight_there(cols), gbias_there(cols);
  auto args = backward_args<float>(NormKind::layer, gy_there.data(), x_there.data(), nullptr, mean.data(),
                                   rstd.data(), static_cast<int64_t>(rows), static_cast<int64_t>(cols));
  args.gweight = gweight_there.data();
  args.gbias = gbias_there.data();
  cuda::norm_backward(args);
  EXPECT_EQ(gweight_there.get(), gweight);
  EXPECT_EQ(gbias_there.get(), gbias);
}

TEST(NormNumerics, ALargeMeanDoesNotCancel) {
  const size_t cols = 512;
  std::vector<float> values(cols);
  for (size_t i = 0; i < cols; ++i) values[i] = 4096.0f + static_cast<float>(i % 2);
  DeviceBuffer<float> x(values), y(cols), mean(1), rstd(1);
  auto args = forward_args<float>(NormKind::layer, x.data(), nullptr, nullptr, 1, 512, 0.0);
  args.y = y.data();
  args.mean = mean.data();
  args.rstd = rstd.data();
  cuda::norm_forward(args);
  EXPECT_EQ(mean.get()[0], 4096.5f);
  EXPECT_EQ(rstd.get()[0], 2.0f);
  EXPECT_EQ(y.get()[0], -1.0f);
  EXPECT_EQ(y.get()[1], 1.0f);
}

}  // namespace
}  // namespace heed
