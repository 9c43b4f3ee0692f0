// Making tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <heed/core/generator.h>
#include <heed/core/tensor.h>

namespace heed {

/// Uninitialised.
Tensor empty(const Shape& shape, TensorOptions options = {});
Tensor empty_like(const Tensor& other);
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor zeros_like(const Tensor& other);
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor full(const Shape& shape, double value, TensorOptions options = {});
/// begin, begin + step, … below end, [n].
Tensor arange(double begin, double end, double step = 1, TensorOptions options = {.dtype = DType::i64});

/// A copy of the values, in row-major order; ShapeError if their number does not fit.
template <class T>
Tensor tensor(std::span<const T> values, const Shape& shape, Device device = kCpu) {
  const Tensor host = empty(shape, {dtype_of<T>(), kCpu});
  HEED_CHECK(static_cast<int64_t>(values.size()) == host.numel(), ShapeError, "tensor: ", values.size(),
             " values for shape ", shape);
  std::copy(values.begin(), values.end(), host.data<T>());
  return host.to(device);
}
template <class T, class Memory>
Tensor tensor(const std::vector<T, Memory>& values, const Shape& shape, Device device = kCpu) {
  return tensor(std::span<const T>(values), shape, device);
}
/// One axis.
template <class T>
Tensor tensor(std::initializer_list<T> values, Device device = kCpu) {
  return tensor(std::span<const T>(values.begin(), values.size()), {static_cast<int64_t>(values.size())},
                device);
}
/// Rank 0.
Tensor scalar(double value, TensorOptions options = {});

/// Uniform in [0, 1).
Tensor rand(const Shape& shape, TensorOptions options = {}, Generator& generator = default_generator());
/// Standard normal.
Tensor randn(const Shape& shape, TensorOptions options = {}, Generator& generator = default_generator());
/// Integers in [low, high), i64.
Tensor randint(int64_t low, int64_t high, const Shape& shape, Device device = kCpu,
               Generator& generator = default_generator());
/// Fills in place: uniform in [low, high), normal.
void uniform_(const Tensor& tensor, double low, double high, Generator& generator = default_generator());
void normal_(const Tensor& tensor, double mean, double deviation, Generator& generator = default_generator());

}  // namespace heed
