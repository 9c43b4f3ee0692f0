#include <cmath>
#include <numbers>

#include <heed/nn/attention/rotary.h>

namespace heed::nn {
namespace {

// Arithmetic between the frequencies that are left and those that are divided by the factor.
double llama3_frequency(double frequency, const RotaryScaling& s) {
  const double turns = static_cast<double>(s.original_length) * frequency / (2 * std::numbers::pi);
  if (turns > s.high_frequency) return frequency;
  if (turns < s.low_frequency) return frequency / s.factor;
  const double kept = (turns - s.low_frequency) / (s.high_frequency - s.low_frequency);
  return frequency * (kept + (1 - kept) / s.factor);
}

}  // namespace

void RotaryConfig::check(int64_t head_width) const {
  HEED_CHECK(base > 0 && std::isfinite(base), ConfigError, "rotary: base is ", base, "; it must be positive");
  HEED_CHECK(rotated(head_width) > 0 && rotated(head_width) % 2 == 0 && rotated(head_width) <= head_width,
             ConfigError, "rotary: ", rotated(head_width), " columns cannot be turned in heads of ",
             head_width, "; the number must be even and no larger");
  HEED_CHECK(scaling.factor >= 1 && std::isfinite(scaling.factor), ConfigError,
             "rotary: the scaling factor is ", scaling.factor, "; it must be at least 1");
  if (scaling.kind != RotaryScalingKind::llama3) return;
  HEED_CHECK(scaling.low_frequency > 0 && scaling.low_frequency < scaling.high_frequency &&
                 std::isfinite(scaling.high_frequency),
             ConfigError, "rotary: low_frequency ", scaling.low_frequency,
             " must be positive and less than high_frequency ", scaling.high_frequency);
  HEED_CHECK(scaling.original_length > 0, ConfigError, "rotary: original_length is ", scaling.original_length,
             "; it must be positive");
}

Tensor rotary_frequencies(const RotaryConfig& config, int64_t head_width) {
  config.check(head_width);
  const RotaryScaling& s = config.scaling;
  const auto rotated = static_cast<double>(config.rotated(head_width));
  double base = config.base;
  if (s.kind == RotaryScalingKind::ntk && rotated > 2) base *= std::pow(s.factor, rotated / (rotated - 2));
  const Tensor frequencies = empty({config.rotated(head_width) / 2}, {.dtype = DType::f64});
  for (int64_t i = 0; i < frequencies.numel(); ++i) {
    double frequency = std::pow(base, -2 * static_cast<double>(i) / rotated);
    if (s.kind == RotaryScalingKind::linear) frequency /= s.factor;
    if (s.kind == RotaryScalingKind::llama3) frequency = llama3_frequency(frequency, s);
    frequencies.data<double>()[i] = frequency;
  }
  return frequencies;
}

Tensor rotary_table(int64_t length, const RotaryConfig& config, int64_t head_width) {
  HEED_CHECK(length >= 0, ConfigError, "rotary_table: length is ", length);
  const Tensor frequencies = rotary_frequencies(config, head_width);
  const int64_t pairs = frequencies.numel(), rotated = 2 * pairs;
  const Tensor table = empty({length, 2, rotated}, {.dtype = DType::f64});
  for (int64_t position = 0; position < length; ++position) {
    double *const own = table.data<double>() + position * 2 * rotated, *const partner = own + rotated;
    for (int64_t i = 0; i < pairs; ++i) {
      const bool half = config.pairing == RotaryPairing::half;
      const int64_t first = half ? i : 2 * i, second = half ? i + pairs : 2 * i + 1;
      const double angle = static_cast<double>(position) * frequencies.data<double>()[i];
      own[first] = own[second] = std::cos(angle);
      partner[first] = -std::sin(angle);
      partner[second] = std::sin(angle);
    }
  }
  return table;
}

}  // namespace heed::nn
