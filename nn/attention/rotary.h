// Rotary positions (Su et al., arXiv 2104.09864): their angles, and the table that turns queries and keys.
#pragma once

#include <cstdint>

#include <heed/core/ops.h>

namespace heed::nn {

/// How angles are made smaller, for sequences longer than those of the training. linear: positions divided by
/// the factor (arXiv 2306.15595); ntk: a base that divides the slowest angle by it and leaves the fastest;
/// llama3: long wavelengths divided, short ones left, those between in proportion (arXiv 2407.21783).
enum class RotaryScalingKind { none, linear, ntk, llama3 };

struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::none;
  double factor = 1;
  double low_frequency = 1, high_frequency = 4;  // of llama3: turns within the original length
  int64_t original_length = 8192;                // of llama3
};

struct RotaryConfig {
  double base = 10000;
  int64_t width = 0;  // columns of a head that are turned; 0: all
  RotaryPairing pairing = RotaryPairing::half;
  RotaryScaling scaling = {};

  /// `width`, or else the head's.
  int64_t rotated(int64_t head_width) const { return width == 0 ? head_width : width; }
  /// ConfigError with the name and value of the first setting that cannot be.
  void check(int64_t head_width) const;
};

/// The angle by which each pair turns from one position to the next, f64 [rotated / 2]: base^(-2 i /
/// rotated), scaled.
Tensor rotary_frequencies(const RotaryConfig& config, int64_t head_width);

/// Of positions 0 … length - 1, as the operation `rotary` takes it: f64 [length, 2, rotated] on the CPU.
Tensor rotary_table(int64_t length, const RotaryConfig& config, int64_t head_width);

/// What turns the queries and keys of one call of attention: nothing without a table.
struct Rotation {
  Tensor table;      // [at least the positions there are, 2, rotated]
  Tensor positions;  // i64 [rows]
  RotaryPairing pairing = RotaryPairing::half;
};

}  // namespace heed::nn
