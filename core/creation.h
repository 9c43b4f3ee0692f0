// Making tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
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
namespace detail {
template <class... Numbers>
inline constexpr bool kAreIntegers = (std::is_integral_v<Numbers> && ...);
int64_t to_i64(uint64_t number);  // ConfigError if it is larger
template <class T>
int64_t to_i64(T number) {
  if constexpr (std::is_signed_v<T>)
    return number;
  else
    return to_i64(uint64_t{number});
}
Tensor arange(int64_t begin, int64_t end, int64_t step, TensorOptions options);
Tensor arange(double begin, double end, double step, TensorOptions options);
}  // namespace detail

/// begin, begin + step, … below end (above it if step < 0), [n]: i64 if all three are integers and f32
/// otherwise, as in PyTorch, where the options say nothing. ConfigError for a number that is not finite, for
/// a step of 0, and for elements that an integer dtype cannot hold.
template <class Begin, class End, class Step = int>
requires(std::is_arithmetic_v<Begin>&& std::is_arithmetic_v<End>&& std::is_arithmetic_v<Step>) Tensor
    arange(Begin begin, End end, Step step = 1,
           TensorOptions options = {.dtype = detail::kAreIntegers<Begin, End, Step> ? DType::i64
                                                                                    : DType::f32}) {
  if constexpr (detail::kAreIntegers<Begin, End, Step>)
    return detail::arange(detail::to_i64(begin), detail::to_i64(end), detail::to_i64(step), options);
  else
    return detail::arange(static_cast<double>(begin), static_cast<double>(end), static_cast<double>(step),
                          options);
}

/// `count` numbers from begin to end, both included, [count]. ConfigError if count is negative or the dtype
/// holds no fractions.
Tensor linspace(double begin, double end, int64_t count, TensorOptions options = {});
/// Ones on the diagonal and zeros elsewhere, [rows, cols]; square if cols is -1.
Tensor eye(int64_t rows, int64_t cols = -1, TensorOptions options = {});

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
/// One axis. tensor({1, 2}) is i64, as indices and class ids are; tensor<int32_t>({1, 2}) is i32.
template <class T>
Tensor tensor(std::initializer_list<T> values, Device device = kCpu) {
  return tensor(std::span<const T>(values.begin(), values.size()), {static_cast<int64_t>(values.size())},
                device);
}
inline Tensor tensor(std::initializer_list<int> values, Device device = kCpu) {
  return tensor(std::vector<int64_t>(values.begin(), values.end()), {static_cast<int64_t>(values.size())},
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
