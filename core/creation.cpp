#include <cmath>

#include <heed/core/creation.h>
#include <heed/core/dispatch.h>
#include <heed/core/tensor_impl.h>

namespace heed {

Tensor empty(const Shape& shape, TensorOptions options) {
  HEED_CHECK(!(options.dtype == DType::f64 && options.device.is_cuda()), DTypeError,
             "f64 exists on the cpu only; use f32 or bf16 on ", options.device);
  int64_t bytes = 0;
  HEED_CHECK(!__builtin_mul_overflow(shape.numel(), size_of(options.dtype), &bytes), ShapeError, "shape ",
             shape, " of ", options.dtype, " has more than 2^63 - 1 bytes");
  return make_tensor(make_ref<Storage>(options.device, bytes), shape, contiguous_strides(shape), 0,
                     options.dtype);
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
  const Tensor host = empty(shape, {options.dtype, kCpu});
  host.fill_(value);
  return host.to(options.device);
}

Tensor scalar(double value, TensorOptions options) { return full({}, value, options); }

Tensor arange(double begin, double end, double step, TensorOptions options) {
  HEED_CHECK(step != 0 && std::isfinite(step), ConfigError, "arange: step is ", step);
  const int64_t count = std::max<int64_t>(0, static_cast<int64_t>(std::ceil((end - begin) / step)));
  const Tensor host = empty({count}, {options.dtype, kCpu});
  visit_dtype(options.dtype, [&]<class T>() {
    T* values = host.data<T>();
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(begin + static_cast<double>(i) * step);
  });
  return host.to(options.device);
}

}  // namespace heed
