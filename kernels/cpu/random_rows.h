// Rows of random numbers by the vector, of the bits that kernels/random.h defines. Private to kernels/cpu:
// not installed.
#pragma once

#include <cstdint>

#include <heed/core/base/dtype.h>
#include <heed/kernels/random.h>

namespace heed::cpu {

/// Elements 4 * group … 4 * group + n - 1 of a fill.
template <class T>
struct RandomRow {
  int64_t n;
  T* y;  // where the first of them belongs
  int64_t group;
  PhiloxState rng;
};

/// T is float, bfloat16 or double; doubles are made one by one, in random.cpp.
template <class T>
void uniform_row(const RandomRow<T>& row, const kernels::UniformRange<T>& range);
template <class T>
void normal_row(const RandomRow<T>& row, const kernels::NormalScale<T>& scale);
void integer_row(const RandomRow<int64_t>& row, const kernels::IntegerRange& range);

}  // namespace heed::cpu
