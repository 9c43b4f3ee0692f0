// Copies, conversions and writes in place.
#include <cmath>

#include <heed/core/creation.h>
#include <heed/core/ops/copy.h>
#include <heed/core/ops/strided_index.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>
#include <heed/kernels/elementwise.h>

namespace heed {

void copy_elements(const Tensor& to, const Tensor& from, bool accumulate) {
  if (to.numel() == 0) return;
  const bool same_layout =
      to.dtype() == from.dtype() && to.shape() == from.shape() && to.is_contiguous() && from.is_contiguous();
  if (same_layout && !accumulate && !backend(to.device()).host_memory) {
    copy_bytes(to.raw_data(), to.device(), from.raw_data(), from.device(), to.numel() * size_of(to.dtype()));
    return;
  }
  visit_dtype(to.dtype(), [&]<class To>() {
    visit_dtype(from.dtype(), [&]<class From>() {
      HEED_DISPATCH(to.device(), copy,
                    kernels::Copy<To, From>{.y = to.data<To>(),
                                            .x = from.data<From>(),
                                            .index = strided_index(to.shape(), to, from),
                                            .accumulate = accumulate});
    });
  });
}

void check_scalar(double value, DType dtype, const char* operation) {
  if (is_floating(dtype) || dtype == DType::boolean) return;
  const double end = dtype == DType::i32 ? 0x1p31 : 0x1p63;
  HEED_CHECK(value == std::trunc(value) && value >= -end && value < end, ConfigError, operation, ": ", value,
             " is not an ", dtype, " number; convert the tensor with to(DType::f32)");
}

// ---- copies

Tensor Tensor::clone() const {
  const Tensor copy = empty_like(*this);
  copy_elements(copy, *this);
  return record("clone", *this, copy, [](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0]); });
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::to(DType dtype) const {
  const DType source = this->dtype();
  if (dtype == source) return *this;
  const Tensor result = empty(shape(), {dtype, device()});
  copy_elements(result, *this);
  if (!is_floating(dtype)) return result;
  return record("to", *this, result,
                [source](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0].to(source)); });
}

Tensor Tensor::to(Device device) const {
  const Device source = this->device();
  if (device == source) return *this;
  const Tensor from = detach().contiguous();
  const Tensor result = empty(shape(), {dtype(), device});
  copy_bytes(result.raw_data(), device, from.raw_data(), source, numel() * size_of(dtype()));
  if (!is_floating(dtype())) return result;
  return record("to", *this, result,
                [source](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0].to(source)); });
}

// ---- in place

void check_in_place(const Tensor& target, const char* operation) {
  for (int axis = 0; axis < target.rank(); ++axis)
    HEED_CHECK(target.strides()[axis] != 0 || target.shape()[axis] <= 1, AliasError, operation,
               ": elements of this tensor of shape ", target.shape(), " overlap along axis ", axis,
               ", which was expanded; write to a clone()");
  HEED_CHECK(!grad_enabled() || !target.requires_grad(), AutogradError, operation, ": cannot write to ",
             target.is_leaf() ? "a leaf that requires a gradient"
                              : concat("the result of ", target.operation(), ", which is part of a graph"),
             "; hold a NoGrad or detach() it");
}

namespace {

void check_source(const Tensor& source, const Tensor& target, const char* operation) {
  HEED_CHECK(!grad_enabled() || !source.requires_grad(), AutogradError, operation,
             ": the source requires a gradient, which a write in place would lose; hold a NoGrad or detach() "
             "it");
  HEED_CHECK(source.rank() <= target.rank() &&
                 broadcast_shapes(source.shape(), target.shape(), operation) == target.shape(),
             ShapeError, operation, ": a source of shape ", source.shape(),
             " does not broadcast to the shape that is written, ", target.shape());
}

// Whether some element of a and some of b may share memory, unless they do so one for one.
bool may_overlap(const Tensor& a, const Tensor& b) {
  if (a.device() != b.device() || a.numel() == 0 || b.numel() == 0) return false;
  const auto last_byte = [](const Tensor& t) {
    int64_t last = 0;
    for (int axis = 0; axis < t.rank(); ++axis) last += (t.shape()[axis] - 1) * t.strides()[axis];
    return static_cast<std::byte*>(t.raw_data()) + (last + 1) * size_of(t.dtype()) - 1;
  };
  const bool same = a.raw_data() == b.raw_data() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
                    a.strides() == b.strides();
  return !same && a.raw_data() <= last_byte(b) && b.raw_data() <= last_byte(a);
}

}  // namespace

const Tensor& Tensor::fill_(double value) const {
  check_scalar(value, dtype(), "fill_");
  check_in_place(*this, "fill_");
  if (numel() == 0) return *this;
  if (value == 0 && !std::signbit(value) && is_contiguous()) {
    fill_bytes(raw_data(), device(), 0, numel() * size_of(dtype()));
  } else {
    visit_dtype(dtype(), [&]<class T>() {
      HEED_DISPATCH(
          device(), fill,
          kernels::Fill<T>{
              .y = data<T>(), .value = static_cast<T>(value), .index = strided_index(shape(), *this)});
    });
  }
  bump_version();
  return *this;
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  check_in_place(*this, "copy_");
  check_source(source, *this, "copy_");
  Tensor from = source;
  if (from.device() != device()) {
    if (is_contiguous() && from.is_contiguous() && from.dtype() == dtype() && from.shape() == shape()) {
      copy_bytes(raw_data(), device(), from.raw_data(), from.device(), numel() * size_of(dtype()));
      bump_version();
      return *this;
    }
    // Converted and repeated on the CPU, which can do both.
    if (backend(from.device()).host_memory) from = from.to(dtype()).expand(shape()).contiguous();
    from = from.to(device());
  }
  if (may_overlap(*this, from)) from = from.clone();
  copy_elements(*this, from);
  bump_version();
  return *this;
}

const Tensor& Tensor::add_(const Tensor& other) const {
  check_in_place(*this, "add_");
  check_source(other, *this, "add_");
  HEED_CHECK(other.device() == device(), DeviceError, "add_: operands on ", device(), " and ", other.device(),
             "; move one with to(Device)");
  HEED_CHECK(dtype() != DType::boolean && (is_floating(dtype()) || !is_floating(other.dtype())), DTypeError,
             "add_: cannot add ", other.dtype(), " to ", dtype(), "; convert one with to(DType)");
  const Tensor from = may_overlap(*this, other) ? other.detach().clone() : other;
  copy_elements(*this, from, true);
  bump_version();
  return *this;
}

const Tensor& Tensor::mul_(double factor) const {
  HEED_CHECK(dtype() != DType::boolean, DTypeError, "mul_: a bool tensor has no product; use logical_and");
  check_scalar(factor, dtype(), "mul_");
  check_in_place(*this, "mul_");
  if (numel() == 0) return *this;
  visit_dtype(dtype(), [&]<class T>() {
    HEED_DISPATCH(device(), binary,
                  kernels::Binary<T>{.op = kernels::BinaryOp::multiply,
                                     .y = data<T>(),
                                     .a = data<T>(),
                                     .b = nullptr,
                                     .scalar = static_cast<T>(factor),
                                     .index = strided_index(shape(), *this, *this, Tensor())});
  });
  bump_version();
  return *this;
}

}  // namespace heed
