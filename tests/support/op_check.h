// Describe an operation once; check_op runs everything that must hold for it:
//   - in f64 on the CPU: the forward against a reference, the gradient against central differences, twice the
//     backward accumulating, each subset of requires_grad, strided and offset inputs;
//   - in every other dtype and on every device of the build: forward and gradients against f64, twice the
//     backward, strided and offset inputs, and gradients of each input alone and of all but each.
// Op tests run with HEED_ALLOCATOR=plain, so that every output is filled with NaN before it is written.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <heed/core/ops.h>

namespace heed::test {

using Tensors = std::vector<Tensor>;

struct OpCheck {
  std::string name;
  /// Values on the CPU. Floating inputs are f64 and are converted to each dtype; others are passed as they
  /// are.
  Tensors inputs;
  /// The operation. It must give the same result each time: random ones make their own Generator.
  std::function<Tensors(const Tensors&)> function;
  /// The same result by other means, for f64 inputs: plain loops or a composition of simple operations.
  std::function<Tensors(const Tensors&)> reference;
  /// A composition of simple operations that also runs in f32 and bf16; its error sets the tolerance there.
  std::function<Tensors(const Tensors&)> plain = {};
  bool differentiable = true;
  std::vector<DType> cuda = {DType::f32, DType::bf16};  // dtypes that have a CUDA kernel
  std::vector<DType> dtypes = {DType::f64, DType::f32, DType::bf16};
  /// Ulps of the largest term that are allowed besides the error of `plain`: forward and gradient.
  double ulps = 2;
  double gradient_ulps = 2;
  /// The largest term of the sums inside, where it is larger than what the result shows.
  double magnitude = 0;
};

/// Reports through GoogleTest's EXPECT.
void check_op(const OpCheck& check);

/// For what holds its parameters itself: the gradient of each f64 leaf against central differences of
/// `function`, in at most `most_elements` elements spread over the leaf.
void check_gradients(const std::string& name, const Tensors& leaves, const std::function<Tensors()>& function,
                     int64_t most_elements = 8);

/// For modules: what `results` gives in f32 on each device is as near to what it gives in f64 as f32 on the
/// CPU is, within four times that error and two ulps. It is called for f64 first, so that it may convert a
/// module.
void check_f32(const std::function<Tensors(DType, Device)>& results);

/// f64 tensors with fixed, well spread values: standard normal from (seed), or uniform in [low, high).
Tensor normal(const Shape& shape, uint64_t seed);
Tensor uniform(const Shape& shape, double low, double high, uint64_t seed);

/// Largest |a - b|; infinite where one is NaN and the other is not, or shapes differ.
double max_difference(const Tensor& a, const Tensor& b);
double max_abs(const Tensor& x);

/// The distance from 1 to the next number.
double epsilon(DType dtype);

/// A tensor with the same elements that is not contiguous: a view into a larger buffer filled with NaN.
Tensor strided_copy(const Tensor& x);

/// The devices of this build that can be used: the CPU, and CUDA where there is one, which has no f64.
std::vector<Device> devices(DType dtype = DType::f32);

}  // namespace heed::test
