// The least that a kernel computes and moves, for roofline figures in a profile.
#pragma once

#include <cstdint>

namespace heed {

struct Cost {
  double flops = 0;  // of matrix products; a multiply-add counts as two
  double bytes = 0;  // that are read or written, each once
};

/// A pass that reads or writes `elements` of T.
template <class T>
constexpr Cost bytes_moved(int64_t elements) {
  return {0, static_cast<double>(elements) * sizeof(T)};
}

constexpr Cost operator+(Cost a, Cost b) { return {a.flops + b.flops, a.bytes + b.bytes}; }

}  // namespace heed
