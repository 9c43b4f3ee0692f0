#include <cmath>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/creation.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>
#include <heed/kernels/random.h>

namespace heed {

Tensor empty(const Shape& shape, TensorOptions options) {
  HEED_CHECK(options.dtype != DType::f64 || backend(options.device).f64, DTypeError,
             "f64 exists on the cpu only; use f32 or bf16 on ", options.device);
  const int64_t numel = shape.numel();
  int64_t bytes = 0;
  HEED_CHECK(!__builtin_mul_overflow(numel, size_of(options.dtype), &bytes), ShapeError, "shape ", shape,
             " of ", options.dtype, " has more than 2^63 - 1 bytes");
  return make_contiguous(make_ref<Storage>(options.device, bytes), shape, numel, options.dtype);
}

Tensor empty_like(const Tensor& other) { return empty(other.shape(), other.options()); }

Tensor zeros(const Shape& shape, TensorOptions options) {
  const Tensor result = empty(shape, options);
  fill_bytes(result.raw_data(), options.device, 0, result.storage()->bytes());
  return result;
}

Tensor zeros_like(const Tensor& other) { return zeros(other.shape(), other.options()); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }

Tensor full(const Shape& shape, double value, TensorOptions options) {
  const Tensor result = empty(shape, options);
  result.fill_(value);
  return result;
}

Tensor scalar(double value, TensorOptions options) { return full({}, value, options); }

namespace detail {
namespace {

constexpr int64_t kElementsPerTask = 16384;

// [count], where set(values, first, last) sets the elements of a task.
template <class Set>
Tensor filled_by_tasks(int64_t count, TensorOptions options, const Set& set) {
  const Tensor host = empty({count}, {options.dtype, kCpu});
  visit_dtype(options.dtype, [&]<class T>() {
    T* values = host.data<T>();
    heed::parallel_for(count, kElementsPerTask,
                       [&](int64_t first, int64_t last) { set(values, first, last); });
  });
  return host.to(options.device);
}

// How many numbers from begin on, `step` apart, lie before end.
int64_t count_steps(int64_t begin, int64_t end, int64_t step) {
  HEED_CHECK(step != 0, ConfigError, "arange: step is 0");
  if (step > 0 ? begin >= end : begin <= end) return 0;
  const auto gap = [](int64_t from, int64_t to) {
    return static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  };
  const uint64_t way = step > 0 ? gap(begin, end) : gap(end, begin),
                 by = step > 0 ? gap(0, step) : gap(step, 0);
  const uint64_t count = (way - 1) / by + 1;
  HEED_CHECK(count <= INT64_MAX, ShapeError, "arange: from ", begin, " to ", end, " by ", step, " are ",
             count, " elements, more than 2^63 - 1");
  return static_cast<int64_t>(count);
}

int64_t whole(double value, DType dtype) {
  HEED_CHECK(value == std::trunc(value) && value >= -0x1p63 && value < 0x1p63, ConfigError, "arange: ", value,
             " is not an ", dtype, " number; ask for {.dtype = DType::f32}");
  return static_cast<int64_t>(value);
}

// begin + i * step, which fits wherever it is an element.
int64_t element(int64_t begin, int64_t i, int64_t step) {
  return static_cast<int64_t>(static_cast<uint64_t>(begin) +
                              static_cast<uint64_t>(i) * static_cast<uint64_t>(step));
}

}  // namespace

int64_t to_i64(uint64_t number) {
  HEED_CHECK(number <= INT64_MAX, ConfigError, "arange: ", number, " is more than 2^63 - 1");
  return static_cast<int64_t>(number);
}

Tensor arange(int64_t begin, int64_t end, int64_t step, TensorOptions options) {
  const int64_t count = count_steps(begin, end, step);
  if (is_floating(options.dtype))
    return arange(static_cast<double>(begin), static_cast<double>(end), static_cast<double>(step), options);
  for (const int64_t edge : {begin, element(begin, std::max<int64_t>(count - 1, 0), step)})
    HEED_CHECK(count == 0 || options.dtype != DType::i32 || edge == static_cast<int32_t>(edge), ConfigError,
               "arange: ", edge, " does not fit i32; ask for {.dtype = DType::i64}");
  return filled_by_tasks(count, options, [&]<class T>(T* values, int64_t first, int64_t last) {
    auto number = static_cast<uint64_t>(element(begin, first, step));
    for (int64_t i = first; i < last; ++i, number += static_cast<uint64_t>(step))
      values[i] = static_cast<T>(number);
  });
}

Tensor arange(double begin, double end, double step, TensorOptions options) {
  HEED_CHECK(step != 0 && std::isfinite(begin) && std::isfinite(end) && std::isfinite(step), ConfigError,
             "arange: from ", begin, " to ", end, " by ", step, "; all must be finite, and the step not 0");
  if (!is_floating(options.dtype))
    return arange(whole(begin, options.dtype),
                  whole(step > 0 ? std::ceil(end) : std::floor(end), options.dtype),
                  whole(step, options.dtype), options);
  const double steps = std::ceil((end - begin) / step);
  HEED_CHECK(steps < 0x1p63, ShapeError, "arange: from ", begin, " to ", end, " by ", step, " are ", steps,
             " elements, more than 2^63 - 1");
  const auto count = static_cast<int64_t>(std::max(0.0, steps));
  return filled_by_tasks(count, options, [&]<class T>(T* values, int64_t first, int64_t last) {
    constexpr int64_t kTogether = 8;  // they differ by constants: the compiler makes vectors of them
    int64_t i = first;
    const auto set = [&](double number, int64_t j) {
      values[i + j] = static_cast<T>(begin + (number + static_cast<double>(j)) * step);
    };
    for (; i + kTogether <= last; i += kTogether) {
      const double number = static_cast<double>(i);
      for (int64_t j = 0; j < kTogether; ++j) set(number, j);
    }
    for (; i < last; ++i) set(static_cast<double>(i), 0);
  });
}

}  // namespace detail

Tensor linspace(double begin, double end, int64_t count, TensorOptions options) {
  HEED_CHECK(count >= 0, ConfigError, "linspace: ", count, " numbers; there cannot be less than none");
  HEED_CHECK(is_floating(options.dtype), ConfigError, "linspace: numbers between ", begin, " and ", end,
             " are not ", options.dtype, "; take a floating-point dtype");
  const Tensor host = empty({count}, {DType::f64, kCpu});
  double* values = host.data<double>();
  const double last = static_cast<double>(std::max<int64_t>(1, count - 1));
  for (int64_t i = 0; i < count; ++i) {  // of both ends, so that each is exact and no difference overflows
    const double share = static_cast<double>(i) / last;
    values[i] = begin * (1 - share) + end * share;
  }
  return host.to(options.dtype).to(options.device);
}

Tensor eye(int64_t rows, int64_t cols, TensorOptions options) {
  const Tensor y = zeros({rows, cols < 0 ? rows : cols}, options);
  const int64_t width = y.size(1);
  make_view(y, {std::min(rows, width)}, {width + 1}, 0).fill_(1);
  return y;
}

namespace {

// Calls fill(t) for a t that is laid out without gaps: the target, or else one that is copied into it.
template <class Fill>
void fill_random(const Tensor& target, const Fill& fill) {
  check_in_place(target, "random");
  if (target.is_contiguous()) {
    fill(target);
    target.bump_version();
  } else {
    const Tensor rows = empty(target.shape(), target.options());
    fill(rows);
    target.copy_(rows);
  }
}

}  // namespace

void uniform_(const Tensor& target, double low, double high, Generator& generator) {
  HEED_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, ConfigError, "uniform_: the range [",
             low, ", ", high, ") is empty or not finite");
  fill_random(target, [&](const Tensor& rows) {
    visit_floating(rows.dtype(), "uniform_", [&]<class T>() {
      HEED_DISPATCH(rows.device(), fill_uniform,
                    kernels::FillUniform<T>{.y = rows.data<T>(),
                                            .count = rows.numel(),
                                            .low = low,
                                            .high = high,
                                            .rng = generator.next(kernels::kFillPositions<T>)});
    });
  });
}

void normal_(const Tensor& target, double mean, double deviation, Generator& generator) {
  HEED_CHECK(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0, ConfigError, "normal_: mean ",
             mean, " and deviation ", deviation, " must be finite, the deviation not negative");
  fill_random(target, [&](const Tensor& rows) {
    visit_floating(rows.dtype(), "normal_", [&]<class T>() {
      HEED_DISPATCH(rows.device(), fill_normal,
                    kernels::FillNormal<T>{.y = rows.data<T>(),
                                           .count = rows.numel(),
                                           .mean = mean,
                                           .std = deviation,
                                           .rng = generator.next(kernels::kFillPositions<T>)});
    });
  });
}

Tensor rand(const Shape& shape, TensorOptions options, Generator& generator) {
  const Tensor result = empty(shape, options);
  uniform_(result, 0, 1, generator);
  return result;
}

Tensor randn(const Shape& shape, TensorOptions options, Generator& generator) {
  const Tensor result = empty(shape, options);
  normal_(result, 0, 1, generator);
  return result;
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, Device device, Generator& generator) {
  HEED_CHECK(low < high, ConfigError, "randint: the range [", low, ", ", high, ") is empty");
  const Tensor result = empty(shape, {DType::i64, device});
  HEED_DISPATCH(device, fill_integers,
                kernels::FillIntegers{.y = result.data<int64_t>(),
                                      .count = result.numel(),
                                      .low = low,
                                      .high = high,
                                      .rng = generator.next(kernels::kFillPositions<int64_t>)});
  return result;
}

}  // namespace heed
