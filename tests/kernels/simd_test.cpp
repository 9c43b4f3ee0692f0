#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd_test.cpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/cpu/activation_simd.h>
#include <heed/kernels/cpu/dropout_simd.h>

#ifndef HEED_SIMD_TEST_ONCE
#define HEED_SIMD_TEST_ONCE
namespace heed::cpu {
enum class Function { exp, exp_fast, log, log_everywhere, tanh, erf, sin, cos, sigmoid };
}
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
void apply(Function f, const T* x, T* y, int64_t count) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t n = count - i < lanes ? count - i : lanes;
    const auto v = load_n(d, x + i, n);
    Vec<Tag<T>> r;
    switch (f) {
      case Function::exp:
        r = exp(d, v);
        break;
      case Function::exp_fast:
        r = exp_fast(d, v);
        break;
      case Function::log:
        r = log(d, v);
        break;
      case Function::log_everywhere:
        r = log_everywhere(d, v);
        break;
      case Function::tanh:
        r = tanh(d, v);
        break;
      case Function::erf:
        r = erf(d, v);
        break;
      case Function::sin:
        r = sine<false>(d, v);
        break;
      case Function::cos:
        r = sine<true>(d, v);
        break;
      default:
        r = sigmoid(d, v);
        break;
    }
    store_n(r, d, y + i, n);
  }
}

void power_f32(const float* a, const float* b, float* y, int64_t count) {
  const Tag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t n = count - i < lanes ? count - i : lanes;
    store_n(power(d, load_n(d, a + i, n), load_n(d, b + i, n)), d, y + i, n);
  }
}

void apply_f32(Function f, const float* x, float* y, int64_t count) { apply(f, x, y, count); }
void apply_f64(Function f, const double* x, double* y, int64_t count) { apply(f, x, y, count); }

/// Through a vector and back: first whole, then the first n lanes only.
template <class T>
int64_t round_trip(const accumulator_t<T>* in, T* out, T* out_n, int64_t n) {
  const Tag<T> d;
  const auto v = load(d, in);
  store(v, d, out);
  store_n(load_n(d, out, n), d, out_n, n);
  return static_cast<int64_t>(hn::Lanes(d));
}
int64_t round_trip_bf16(const float* in, bfloat16* out, bfloat16* out_n, int64_t n) {
  return round_trip(in, out, out_n, n);
}
int64_t round_trip_f32(const float* in, float* out, float* out_n, int64_t n) {
  return round_trip(in, out, out_n, n);
}
int64_t round_trip_f64(const double* in, double* out, double* out_n, int64_t n) {
  return round_trip(in, out, out_n, n);
}
void load_bf16(const bfloat16* in, float* out) {
  const Tag<bfloat16> d;
  store(load(d, in), d, out);
}

template <class T>
void dropout_ones(const Dropout& dropout, int64_t first, int64_t count, T* y) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  KeepMaskBuffer buffer;
  fill_keep_mask(dropout, first, count, buffer.bits);
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t n = count - i < lanes ? count - i : lanes;
    store_n(apply_dropout(d, hn::Set(d, accumulator_t<T>(1)), buffer.bits, i, dropout), d, y + i, n);
  }
}
void dropout_ones_f32(const Dropout& dropout, int64_t first, int64_t count, float* y) {
  dropout_ones(dropout, first, count, y);
}
void dropout_ones_f64(const Dropout& dropout, int64_t first, int64_t count, double* y) {
  dropout_ones(dropout, first, count, y);
}
float sum_f32(const float* x) {
  const Tag<float> d;
  return reduce_sum(d, load(d, x));
}
float max_f32(const float* x) {
  const Tag<float> d;
  return reduce_max(d, load(d, x));
}
int64_t lanes_f32() { return static_cast<int64_t>(hn::Lanes(Tag<float>())); }

template <Activation A>
void activation_rows(const double* x, const float* xf, double* y, float* yf, double* g, float* gf) {
  const Tag<double> d;
  const Tag<float> df;
  for (int64_t i = 0; i < 16; i += static_cast<int64_t>(hn::Lanes(d))) {
    store(activate<A>(d, load(d, x + i)), d, y + i);
    store(activate_backward<A>(d, load(d, x + i), hn::Set(d, 1.0)), d, g + i);
  }
  for (int64_t i = 0; i < 16; i += static_cast<int64_t>(hn::Lanes(df))) {
    store(activate<A>(df, load(df, xf + i)), df, yf + i);
    store(activate_backward<A>(df, load(df, xf + i), hn::Set(df, 1.0f)), df, gf + i);
  }
}
/// 16 elements at a time.
void activations(Activation a, const double* x, const float* xf, double* y, float* yf, double* g, float* gf) {
  switch (a) {
    case Activation::relu:
      return activation_rows<Activation::relu>(x, xf, y, yf, g, gf);
    case Activation::gelu:
      return activation_rows<Activation::gelu>(x, xf, y, yf, g, gf);
    case Activation::gelu_tanh:
      return activation_rows<Activation::gelu_tanh>(x, xf, y, yf, g, gf);
    case Activation::silu:
      return activation_rows<Activation::silu>(x, xf, y, yf, g, gf);
    default:
      return activation_rows<Activation::none>(x, xf, y, yf, g, gf);
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HWY_EXPORT(apply_f32);
HWY_EXPORT(apply_f64);
HWY_EXPORT(power_f32);
HWY_EXPORT(round_trip_bf16);
HWY_EXPORT(round_trip_f32);
HWY_EXPORT(round_trip_f64);
HWY_EXPORT(load_bf16);
HWY_EXPORT(dropout_ones_f32);
HWY_EXPORT(dropout_ones_f64);
HWY_EXPORT(sum_f32);
HWY_EXPORT(max_f32);
HWY_EXPORT(lanes_f32);
HWY_EXPORT(activations);

constexpr float kInf = std::numeric_limits<float>::infinity();

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

double reference(Function f, double x) {
  switch (f) {
    case Function::exp:
    case Function::exp_fast:
      return std::exp(x);
    case Function::log:
    case Function::log_everywhere:
      return std::log(x);
    case Function::tanh:
      return std::tanh(x);
    case Function::erf:
      return std::erf(x);
    case Function::sin:
      return std::sin(x);
    case Function::cos:
      return std::cos(x);
    default:
      return 1 / (1 + std::exp(-x));
  }
}

/// Every `step`-th float in [low, high].
std::vector<float> floats_between(float low, float high, uint32_t step) {
  std::vector<float> x;
  for (const float sign : {1.0f, -1.0f}) {
    // The bits of numbers that are not negative are in the order of the numbers.
    const float least = std::max(0.0f, sign > 0 ? low : -high), most = sign > 0 ? high : -low;
    if (most < least) continue;
    const uint64_t begin = std::bit_cast<uint32_t>(least), last = std::bit_cast<uint32_t>(most);
    for (uint64_t bits = (begin + step - 1) / step * step; bits <= last; bits += step)
      x.push_back(sign * std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  return x;
}

/// The largest error in units of the last place over those.
double max_ulp(Function f, float low, float high, uint32_t step) {
  const std::vector<float> x = floats_between(low, high, step);
  std::vector<float> y(x.size());
  HEED_SIMD(apply_f32)(f, x.data(), y.data(), int64_t(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = reference(f, x[i]);
    const float rounded = std::fabs(float(exact));
    const double ulp = double(std::nextafter(rounded, kInf)) - double(rounded);
    worst = std::max(worst, std::fabs(double(y[i]) - exact) / ulp);
  }
  return worst;
}

TEST(Simd, ElementaryFunctionsAreWithinTheirStatedUlps) {
  EXPECT_LE(max_ulp(Function::exp, -103.0f, 88.7f, 4999), 2.0);
  EXPECT_LE(max_ulp(Function::exp_fast, -32.0f, 32.0f, 4999), 4.0);
  EXPECT_LE(max_ulp(Function::exp_fast, -86.9f, 88.0f, 4999), 6.0);
  EXPECT_LE(max_ulp(Function::log, 1.2e-38f, 3.4e38f, 4999), 1.0);
  EXPECT_LE(max_ulp(Function::log_everywhere, std::numeric_limits<float>::denorm_min(), 3.4e38f, 4999), 2.0);
  EXPECT_LE(max_ulp(Function::tanh, -50.0f, 50.0f, 4999), 2.0);
  EXPECT_LE(max_ulp(Function::erf, -50.0f, 50.0f, 4999), 2.0);
  for (const Function f : {Function::sin, Function::cos}) {
    EXPECT_LE(max_ulp(f, -1e5f, 1e5f, 499), 2.0);
    EXPECT_LE(max_ulp(f, 1.4f, 1.7f, 1), 2.0);  // a quarter turn
    EXPECT_LE(max_ulp(f, 3.1f, 3.2f, 1), 2.0);
    EXPECT_LE(max_ulp(f, -3.4e38f, 3.4e38f, 49999), 2.0);
  }
  EXPECT_LE(max_ulp(Function::sigmoid, -80.0f, 80.0f, 4999), 4.0);
}

TEST(Simd, FastExponentialsAreNeverSubnormal) {
  std::vector<float> x, y(4000);
  for (int i = 0; i < 4000; ++i) x.push_back(-120.0f + 0.01f * float(i));
  HEED_SIMD(apply_f32)(Function::exp_fast, x.data(), y.data(), int64_t(y.size()));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_TRUE(y[i] == 0 || y[i] >= FLT_MIN) << x[i];
}

TEST(Simd, ElementaryFunctionsAtTheEdges) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {nan, kInf, -kInf, 0.0f, -0.0f, 1000.0f, -1000.0f, 1e-30f};
  float y[8];
  const auto at = [&](Function f) { HEED_SIMD(apply_f32)(f, x, y, 8); };
  for (Function f : {Function::exp, Function::exp_fast, Function::tanh, Function::erf, Function::sigmoid}) {
    at(f);
    EXPECT_TRUE(std::isnan(y[0]));
  }
  at(Function::exp);
  EXPECT_EQ(y[1], kInf);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[5], kInf);
  EXPECT_EQ(y[6], 0.0f);
  at(Function::exp_fast);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[6], 0.0f);
  for (Function f : {Function::log, Function::log_everywhere}) {
    at(f);
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], kInf);
  }
  for (const int i : {2, 6}) EXPECT_TRUE(std::isnan(y[i])) << x[i];
  for (const int i : {3, 4}) EXPECT_EQ(y[i], -kInf) << x[i];
  for (Function f : {Function::tanh, Function::erf}) {
    at(f);
    EXPECT_EQ(y[1], 1.0f);
    EXPECT_EQ(y[2], -1.0f);
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_TRUE(std::signbit(y[4]));
    EXPECT_EQ(y[5], 1.0f);
  }
  for (Function f : {Function::sin, Function::cos}) {
    at(f);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y[i]));
    EXPECT_EQ(y[3], f == Function::cos ? 1.0f : 0.0f);
    EXPECT_EQ(std::signbit(y[4]), f == Function::sin);
    EXPECT_EQ(y[7], f == Function::cos ? 1.0f : 1e-30f);
  }
  at(Function::sigmoid);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 0.5f);
}

TEST(Simd, PowersAreThoseOfTheStandardLibraryRoundedOnce) {
  const float least = std::numeric_limits<float>::denorm_min(), most = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> numbers = {0.0f,       -0.0f, 1.0f,   -1.0f, 0.5f,  -0.5f,  2.0f,   -2.0f,
                                3.0f,       -3.0f, 1e-3f,  -7.5f, 1e20f, -1e20f, 1e-20f, 16777216.0f,
                                8388607.5f, least, -least, most,  -most, kInf,   -kInf,  nan};
  for (uint32_t word = 0; word < 0xfff00000u; word += 0x00d3a5b1u) {
    float value;
    std::memcpy(&value, &word, sizeof value);
    numbers.push_back(value);
  }
  for (float x = 0.02f; x < 30; x *= 1.37f) {
    numbers.push_back(x);
    numbers.push_back(-std::round(x));
  }
  std::vector<float> y(numbers.size());
  for (const float exponent : numbers) {
    const std::vector<float> exponents(numbers.size(), exponent);
    HEED_SIMD(power_f32)(numbers.data(), exponents.data(), y.data(), int64_t(y.size()));
    for (size_t i = 0; i < y.size(); ++i) {
      const double exact = std::pow(double(numbers[i]), double(exponent));
      const float rounded = float(exact);
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(y[i])) << numbers[i] << " to " << exponent << " is " << y[i];
      } else if (bits_of(y[i]) != bits_of(rounded)) {  // then the exact number is between both
        ASSERT_LE(std::fabs(double(y[i]) - exact),
                  std::fabs(double(rounded) - exact) + 1e-9 * std::fabs(exact))
            << numbers[i] << " to " << exponent;
      }
    }
  }
}

TEST(Simd, DoubleFunctionsAreThoseOfTheStandardLibrary) {
  const double x[] = {-3.0, -0.1, 0.0, 0.7, 2.5};
  double y[5];
  HEED_SIMD(apply_f64)(Function::log, x + 3, y, 2);
  for (int i = 0; i < 2; ++i) EXPECT_DOUBLE_EQ(y[i], reference(Function::log, x[3 + i]));
  for (Function f : {Function::exp, Function::exp_fast, Function::tanh, Function::erf, Function::sin,
                     Function::cos, Function::sigmoid}) {
    HEED_SIMD(apply_f64)(f, x, y, 5);
    for (int i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(y[i], reference(f, x[i]));
  }
}

TEST(Simd, Bfloat16RoundsLikeTheScalarType) {
  std::vector<uint32_t> words;
  for (uint64_t word = 0; word < 0x100000000u; word += 65521) words.push_back(uint32_t(word));
  for (uint32_t upper : {0x3f80u, 0x3f81u, 0x7f7fu, 0xff7fu, 0x0000u, 0x8000u, 0x0001u}) {
    for (uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      words.push_back(upper << 16 | lower);
  }
  for (uint32_t word : {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffffffffu, 0x7fc00000u})
    words.push_back(word);
  words.resize((words.size() + 63) / 64 * 64);
  const int64_t lanes = HEED_SIMD(lanes_f32)();
  for (size_t i = 0; i < words.size(); i += size_t(lanes)) {
    float in[16], back[16];
    bfloat16 out[16], out_n[16];
    std::memcpy(in, &words[i], size_t(lanes) * 4);
    HEED_SIMD(round_trip_bf16)(in, out, out_n, lanes);
    HEED_SIMD(load_bf16)(out, back);
    for (int64_t j = 0; j < lanes; ++j) {
      ASSERT_EQ(out[j].bits, bfloat16(in[j]).bits) << in[j];
      ASSERT_EQ(bits_of(back[j]), uint32_t(out[j].bits) << 16);
    }
  }
}

template <class T, class F>
void check_partial_access(F round_trip) {
  accumulator_t<T> in[16];
  for (int i = 0; i < 16; ++i) in[i] = accumulator_t<T>(i + 1);
  T out[16];
  const int64_t lanes = round_trip(in, out, out, 0);
  for (int64_t n = 0; n <= lanes; ++n) {
    // Exactly n elements on the heap: a sanitizer sees any access beyond them.
    std::vector<T> exact(static_cast<size_t>(n));
    round_trip(in, out, exact.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(accumulator_t<T>(exact[size_t(i)]), in[i]);
    T guarded[17];
    for (T& g : guarded) g = T(-7);
    round_trip(in, out, guarded, n);
    for (int64_t i = n; i < 17; ++i) EXPECT_EQ(accumulator_t<T>(guarded[i]), accumulator_t<T>(-7));
  }
}

TEST(Simd, PartialVectorsTouchNothingElse) {
  check_partial_access<float>(HEED_SIMD(round_trip_f32));
  check_partial_access<double>(HEED_SIMD(round_trip_f64));
  check_partial_access<bfloat16>(HEED_SIMD(round_trip_bf16));
}

TEST(Simd, SumsAndMaximaOverLanes) {
  float x[16];
  const int64_t lanes = HEED_SIMD(lanes_f32)();
  for (int i = 0; i < 16; ++i) x[i] = float((i * 7) % 16) - 20.0f;
  float sum = 0, most = -kInf;
  for (int64_t i = 0; i < lanes; ++i) {
    sum += x[i];
    most = std::max(most, x[i]);
  }
  EXPECT_EQ(HEED_SIMD(sum_f32)(x), sum);
  EXPECT_EQ(HEED_SIMD(max_f32)(x), most);
}

TEST(Simd, DropoutMatchesTheScalarBitsFromAnyPosition) {
  const uint64_t base = 5;
  for (int64_t first : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{8}, int64_t{1003},
                        (int64_t{1} << 35) + 8 * 3 + 5, (int64_t{1} << 35) - 11}) {
    for (int64_t count : {int64_t{1}, int64_t{20}, int64_t{129}, kDropoutChunk}) {
      for (double p : {0.1, 0.5, 0.999999}) {
        const Dropout dropout = make_dropout(p, {0x123456789abcdefull, &base, (uint64_t{1} << 33) + 77});
        std::vector<float> y(static_cast<size_t>(count));
        std::vector<double> yd(static_cast<size_t>(count));
        HEED_SIMD(dropout_ones_f32)(dropout, first, count, y.data());
        HEED_SIMD(dropout_ones_f64)(dropout, first, count, yd.data());
        for (int64_t i = 0; i < count; ++i) {
          const int64_t element = first + i;
          const bool kept =
              dropout_bits(dropout.rng, element / 8).bits(int(element % 8)) >= dropout.threshold;
          ASSERT_EQ(y[size_t(i)], kept ? dropout.scale : 0.0f) << first << " + " << i;
          ASSERT_EQ(yd[size_t(i)], kept ? double(dropout.scale) : 0.0) << first << " + " << i;
        }
      }
    }
  }
}

double activation_reference(Activation a, double x) {
  switch (a) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

TEST(Simd, ActivationsAndTheirDerivatives) {
  for (Activation a :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    for (double low = -12; low < 12; low += 0.37) {
      double x[16], y[16], g[16];
      float xf[16], yf[16], gf[16];
      for (int i = 0; i < 16; ++i) {
        xf[i] = float(low + 0.02 * i + 0.003);
        x[i] = double(xf[i]);
      }
      HEED_SIMD(activations)(a, x, xf, y, yf, g, gf);
      for (int i = 0; i < 16; ++i) {
        const double exact = activation_reference(a, x[i]), h = 1e-5;
        const double slope =
            (activation_reference(a, x[i] + h) - activation_reference(a, x[i] - h)) / (2 * h);
        const double eps = std::numeric_limits<float>::epsilon();
        EXPECT_NEAR(y[i], exact, 1e-14 * (1 + std::fabs(x[i])));
        EXPECT_NEAR(g[i], slope, 1e-9);
        EXPECT_NEAR(yf[i], exact, 2 * eps * std::max(1.0, std::fabs(x[i])))
            << name(isa()) << int(a) << " " << x[i];
        EXPECT_NEAR(gf[i], slope, 8 * eps) << name(isa()) << int(a) << " " << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace heed::cpu
#endif
