// What many operations check and ask for. Private to core: not installed.
#pragma once

#include <utility>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/tensor.h>

namespace heed {

/// {product of the leading axes, size of the last}; ShapeError for rank 0.
inline std::pair<int64_t, int64_t> rows_and_cols(const Tensor& x, const char* operation) {
  HEED_CHECK(x.rank() > 0, ShapeError, operation, ": needs at least one axis, got a tensor of rank 0");
  const int64_t cols = x.size(-1);
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) rows *= x.shape()[axis];
  return {rows, cols};
}

/// Both on one device and of one dtype.
inline void check_same_kind(const Tensor& a, const Tensor& b, const char* operation) {
  HEED_CHECK(a.device() == b.device(), DeviceError, operation, ": operands on ", a.device(), " and ",
             b.device(), "; move one with to(Device)");
  HEED_CHECK(a.dtype() == b.dtype(), DTypeError, operation, ": operands are ", a.dtype(), " and ", b.dtype(),
             "; convert one with to(DType)");
}

/// f32, bf16 or f64: for what has to be known before anything is drawn from a generator.
inline void check_floating(const Tensor& x, const char* operation) {
  HEED_CHECK(is_floating(x.dtype()), DTypeError, operation,
             ": needs a floating-point tensor (f32, bf16 or f64), got ", x.dtype());
}

/// An optional tensor of a fixed shape and x's kind.
inline void check_parameter(const Tensor& parameter, const char* name, const Shape& shape, const Tensor& x,
                            const char* operation) {
  if (!parameter.defined()) return;
  HEED_CHECK(parameter.shape() == shape, ShapeError, operation, ": ", name, " is ", parameter.shape(),
             ", expected ", shape, " for an input of ", x.shape());
  check_same_kind(x, parameter, operation);
}

/// x, or a copy of it without gaps. Unlike Tensor::contiguous() it copies no handle: the counts of a model's
/// weights are shared by all threads that use it. x must outlive it.
class Contiguous {
 public:
  explicit Contiguous(const Tensor& x) : tensor_(&x) {
    if (x.defined() && !x.is_contiguous()) tensor_ = &(copy_ = x.contiguous());
  }
  Contiguous(const Contiguous&) = delete;
  Contiguous& operator=(const Contiguous&) = delete;

  const Tensor& operator*() const { return *tensor_; }
  const Tensor* operator->() const { return tensor_; }

 private:
  const Tensor* tensor_;
  Tensor copy_;
};

inline Tensor contiguous_or_undefined(const Tensor& x) { return x.defined() ? x.contiguous() : Tensor(); }

/// Its elements from number `first` on; null for an undefined tensor.
template <class T>
T* data_or_null(const Tensor& x, int64_t first = 0) {
  return x.defined() ? x.data<T>() + first : nullptr;
}

/// The options of a tensor of statistics about x: f32, or f64 for f64.
inline TensorOptions accumulator_options(const Tensor& x) {
  return {x.dtype() == DType::f64 ? DType::f64 : DType::f32, x.device()};
}

inline GradSlot slot_if_wanted(GradOut& gx, int input) {
  return gx.wants(input) ? gx.into(input) : GradSlot{};
}
inline GradSlot accumulator_if_wanted(GradOut& gx, int input) {
  return gx.wants(input) ? gx.into_accumulator(input) : GradSlot{};
}

/// The gradient of an operation that is constant almost everywhere.
inline void give_zeros(GradOut& gx) {
  const GradSlot slot = gx.into(0);
  if (!slot.accumulate) slot.tensor.zero_();
}

}  // namespace heed
