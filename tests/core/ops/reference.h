// References by coordinates: what an operation must give, one element at a time, in f64.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>

#include "op_check.h"

namespace heed::test {

using Place = std::vector<int64_t>;

/// Calls f(place) for each place of `shape`, in row-major order.
inline void for_each_place(const Shape& shape, const std::function<void(const Place&)>& f) {
  const int64_t count = shape.numel();
  Place place(static_cast<size_t>(shape.rank()), 0);
  for (int64_t i = 0; i < count; ++i) {
    f(place);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (++place[static_cast<size_t>(axis)] < shape[axis]) break;
      place[static_cast<size_t>(axis)] = 0;
    }
  }
}

/// The element of x at a place of a shape that x broadcasts to. x is f64, i64 or bool.
inline double at(const Tensor& x, const Place& place) {
  int64_t offset = 0;
  const size_t shift = place.size() - static_cast<size_t>(x.rank());
  for (int axis = 0; axis < x.rank(); ++axis)
    if (x.shape()[axis] != 1) offset += place[shift + static_cast<size_t>(axis)] * x.strides()[axis];
  return visit_dtype(x.dtype(), [&]<class T>() { return static_cast<double>(x.data<T>()[offset]); });
}

/// The tensor whose element at each place is f(place).
inline Tensor build(const Shape& shape, const std::function<double(const Place&)>& f,
                    DType dtype = DType::f64) {
  const Tensor y = empty(shape, {dtype, kCpu});
  visit_dtype(dtype, [&]<class T>() {
    T* next = y.data<T>();
    for_each_place(shape, [&](const Place& place) { *next++ = static_cast<T>(f(place)); });
  });
  return y;
}

inline Tensors one(const Tensor& x) { return {x}; }

/// Expects that f throws Error with a message that contains each of `parts`.
template <class Error>
void expect_error(const std::function<void()>& f, const std::vector<std::string>& parts) {
  try {
    f();
  } catch (const Error& error) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what() << "\nlacks: " << part;
    return;
  } catch (const std::exception& error) {
    FAIL() << "another exception: " << error.what();
  }
  FAIL() << "no exception; expected one with: " << (parts.empty() ? "" : parts[0]);
}

/// i64 numbers in [low, high), well spread.
inline Tensor indices(const Shape& shape, int64_t low, int64_t high, uint64_t seed) {
  const Tensor values = uniform(shape, 0, 1, seed);
  const double width = static_cast<double>(high - low);
  return build(
      shape, [&](const Place& p) { return std::floor(at(values, p) * width) + static_cast<double>(low); },
      DType::i64);
}

/// Shapes that fill no vector, have axes of 1 and 0, no axis, or all eight.
inline const std::vector<Shape>& awkward_shapes() {
  static const std::vector<Shape> shapes = {
      {}, {1}, {7}, {0}, {3, 5}, {2, 0, 3}, {2, 1, 3, 2}, {2, 1, 2, 1, 3, 1, 2, 2}, {1025}};
  return shapes;
}

}  // namespace heed::test
