#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>

namespace heed {
namespace {

// Only 0 and 1, with at least one 1: so looks a boolean mask that was turned into floats. (All zeros is an
// ordinary bias, such as a learned one at its start.)
bool looks_boolean(const Tensor& bias) {
  const Tensor host = bias.detach().to(kCpu).contiguous();
  return visit_floating(bias.dtype(), "Mask::added", [&]<class T>() {
    const T* values = host.data<T>();
    bool ones = false;
    for (int64_t i = 0; i < host.numel(); ++i) {
      const double value = static_cast<double>(values[i]);
      if (value != 0 && value != 1) return false;
      ones |= value == 1;
    }
    return ones;
  });
}

void check_boolean(const Tensor& mask, const char* operation) {
  HEED_CHECK(mask.dtype() == DType::boolean, DTypeError, operation, ": the mask is ", mask.dtype(),
             "; it must be bool. Values to add to the scores go into Mask::added");
}

}  // namespace

Mask Mask::allowed(const Tensor& visible) {
  check_boolean(visible, "Mask::allowed");
  Mask mask;
  mask.visible_ = visible;
  return mask;
}

Mask Mask::blocked(const Tensor& hidden) {
  check_boolean(hidden, "Mask::blocked");
  Mask mask;
  mask.visible_ = logical_not(hidden);
  return mask;
}

Mask Mask::added(const Tensor& bias) {
  check_floating(bias, "Mask::added");
  HEED_CHECK(bias.requires_grad() || !looks_boolean(bias), ConfigError,
             "Mask::added: a bias of only 0 and 1 is a boolean mask in disguise; convert it with "
             "to(DType::boolean) and say Mask::allowed where 1 means visible, Mask::blocked where it means "
             "hidden");
  Mask mask;
  mask.bias_ = bias;
  return mask;
}

}  // namespace heed
