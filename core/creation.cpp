#include <cmath>

#include <heed/core/base/parallel_for.h>
#include <heed/core/creation.h>
#include <heed/core/dispatch.h>
#include <heed/core/tensor_impl.h>
#include <heed/kernels/random.h>

namespace heed {

Tensor empty(const Shape& shape, TensorOptions options) {
  HEED_CHECK(!(options.dtype == DType::f64 && options.device.is_cuda()), DTypeError,
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

namespace {

// A whole number that double and int64_t both hold, as they do those around it.
bool is_whole(double x) { return std::abs(x) < 0x1p53 && x == std::floor(x); }

}  // namespace

Tensor arange(double begin, double end, double step, TensorOptions options) {
  HEED_CHECK(step != 0 && std::isfinite(step), ConfigError, "arange: step is ", step);
  const int64_t count = std::max<int64_t>(0, static_cast<int64_t>(std::ceil((end - begin) / step)));
  const Tensor host = empty({count}, {options.dtype, kCpu});
  constexpr int64_t kElementsPerTask = 16384;
  visit_dtype(options.dtype, [&]<class T>() {
    T* values = host.data<T>();
    if constexpr (std::is_integral_v<T>) {
      if (is_whole(begin) && is_whole(end) && is_whole(step)) {  // without a detour through double
        const auto from = static_cast<int64_t>(begin), by = static_cast<int64_t>(step);
        return parallel_for(count, kElementsPerTask, [&](int64_t first, int64_t last) {
          for (int64_t i = first, value = from + i * by; i < last; ++i, value += by)
            values[i] = static_cast<T>(value);
        });
      }
    }
    parallel_for(count, kElementsPerTask, [&](int64_t first, int64_t last) {
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
  });
  return host.to(options.device);
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
