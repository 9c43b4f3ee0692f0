// What a kernel cannot do without, by which a profile tells how far it is from the machine's own rates.
#pragma once

#include <cstdint>

namespace heed {

struct Work {
  double operations = 0;  // of matrix products; a multiply-add counts as two
  double bytes = 0;       // that are read or written, each once
};

/// A pass that reads or writes `elements` of T.
template <class T>
constexpr Work moves(int64_t elements) {
  return {0, static_cast<double>(elements) * sizeof(T)};
}

constexpr Work operator+(Work a, Work b) { return {a.operations + b.operations, a.bytes + b.bytes}; }

}  // namespace heed
