// Normal numbers of f32 and bf16 from random words (Box and Muller, doi 10.1214/aoms/1177706645), with the
// same bits on every device: their logarithms and sines differ in the last place, so these are made of sums,
// products, one quotient and one root in double, each rounded by itself. The error before the result is
// rounded to float is below 1e-11 of it, or of 1 where it is smaller.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <heed/core/base/host_device.h>

namespace heed::kernels {

/// a * b + c in two roundings, which no compiler may make one (heed's own sources are built without
/// contraction).
HEED_HOST_DEVICE inline double multiply_add(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(__dmul_rn(a, b), c);
#else
  return a * b + c;
#endif
}

/// -2 log((word + 1/2) / 2^32).
HEED_HOST_DEVICE inline double minus_two_log(uint32_t word) {
  // 2 word + 1 = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1).
  double m = static_cast<double>(2 * uint64_t{word} + 1);
  uint64_t bits;
  memcpy(&bits, &m, sizeof m);
  int e = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++e;
  }
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 1.0 / 15;
  sum = multiply_add(sum, z, 1.0 / 13);
  sum = multiply_add(sum, z, 1.0 / 11);
  sum = multiply_add(sum, z, 1.0 / 9);
  sum = multiply_add(sum, z, 1.0 / 7);
  sum = multiply_add(sum, z, 1.0 / 5);
  sum = multiply_add(sum, z, 1.0 / 3);
  sum = multiply_add(sum, z, 1.0);
  constexpr double kLog2 = 0.69314718055994530942;
  return -2 * multiply_add(2 * s, sum, (e - 33) * kLog2);
}

struct CosineAndSine {
  double cosine, sine;
};

/// Of the angle word / 2^32 turns.
HEED_HOST_DEVICE inline CosineAndSine cosine_and_sine(uint32_t word) {
  // word = quarter 2^30 + rest, |rest| <= 2^29: an eighth of a turn, where the Taylor series are short.
  const uint32_t quarter = (word + (1u << 29)) >> 30;
  const auto rest = static_cast<int32_t>(word - (quarter << 30));
  const double x = rest * (6.28318530717958647692 * 0x1p-32), z = x * x;
  double cosine = 1.0 / 479001600;
  cosine = multiply_add(cosine, z, -1.0 / 3628800);
  cosine = multiply_add(cosine, z, 1.0 / 40320);
  cosine = multiply_add(cosine, z, -1.0 / 720);
  cosine = multiply_add(cosine, z, 1.0 / 24);
  cosine = multiply_add(cosine, z, -1.0 / 2);
  cosine = multiply_add(cosine, z, 1.0);
  double sine = -1.0 / 39916800;
  sine = multiply_add(sine, z, 1.0 / 362880);
  sine = multiply_add(sine, z, -1.0 / 5040);
  sine = multiply_add(sine, z, 1.0 / 120);
  sine = multiply_add(sine, z, -1.0 / 6);
  sine = multiply_add(sine, z, 1.0) * x;
  const bool swapped = quarter & 1, turned = quarter & 2;
  const double c = swapped ? -sine : cosine, s = swapped ? cosine : sine;
  return {turned ? -c : c, turned ? -s : s};
}

/// Two numbers of mean 0 and deviation 1.
HEED_HOST_DEVICE inline CosineAndSine box_muller(uint32_t radius_word, uint32_t angle_word) {
  const double radius = std::sqrt(minus_two_log(radius_word));
  const CosineAndSine direction = cosine_and_sine(angle_word);
  return {radius * direction.cosine, radius * direction.sine};
}

}  // namespace heed::kernels
