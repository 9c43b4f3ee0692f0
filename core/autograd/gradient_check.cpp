#include <algorithm>
#include <cmath>
#include <ostream>

#include <heed/core/autograd/gradient_check.h>
#include <heed/core/base/philox.h>
#include <heed/core/ops.h>

namespace heed {
namespace {

using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;

bool is_checked(const Tensor& input) { return input.defined() && is_floating(input.dtype()); }

// Copies of the inputs, those that are checked as leaves.
Tensors leaves_of(const Tensors& inputs) {
  Tensors leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    HEED_CHECK(!is_checked(input) || input.dtype() == DType::f64, DTypeError, "check_gradients: input ", i,
               " is ", input.dtype(), "; differences need f64, convert it with to(DType::f64)");
    leaves.push_back(is_checked(input) ? input.detach().clone().set_requires_grad() : input);
  }
  return leaves;
}

// Weights of the result's elements in [0.5, 1.5), some of them negative: no two cancel each other.
Tensor weights_for(const Tensor& result) {
  const Tensor weights = empty(result.shape(), {.dtype = DType::f64});
  double* values = weights.data<double>();
  for (int64_t i = 0; i < weights.numel(); ++i) {
    const Philox4 bits = philox(static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0, 1, 0);
    const double size = 0.5 + bits.word[0] * 0x1p-32;
    values[i] = bits.word[1] & 1 ? size : -size;
  }
  return weights;
}

// Of fourth order: the step can be so large that rounding does not matter.
double slope_at(const Tensor& leaf, int64_t element, double step, const std::function<double()>& value) {
  double& x = leaf.data<double>()[element];
  const double kept = x, h = step * std::max(1.0, std::abs(kept));
  const auto at = [&](double moved) {
    x = moved;
    leaf.bump_version();
    return value();
  };
  const double near = at(kept + h) - at(kept - h), far = at(kept + 2 * h) - at(kept - 2 * h);
  x = kept;
  leaf.bump_version();
  return (8 * near - far) / (12 * h);
}

std::vector<int64_t> place_of(int64_t element, const Shape& shape) {
  std::vector<int64_t> place(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    place[static_cast<size_t>(axis)] = element % shape[axis];
    element /= shape[axis];
  }
  return place;
}

// Of one input.
void compare(const Tensor& leaf, int input, const std::function<double()>& value,
             const GradientCheckOptions& options, GradientReport& report) {
  const Tensor reached = leaf.grad();
  const Tensor gradient = reached.defined() ? reached : zeros_like(leaf);
  const double* expected = gradient.data<double>();
  const int64_t count = leaf.numel(), most = options.most_elements > 0 ? options.most_elements : count;
  double largest = 1;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(expected[i]));
  for (int64_t i = 0; i < count; i += std::max<int64_t>(1, (count + most - 1) / most)) {
    const double slope = slope_at(leaf, i, options.step, value);
    ++report.compared;
    if (!(std::abs(expected[i] - slope) <= options.tolerance * largest))
      report.wrong.push_back({input, place_of(i, leaf.shape()), expected[i], slope});
  }
}

}  // namespace

GradientReport check_gradients(const Function& function, const Tensors& inputs,
                               const GradientCheckOptions& options) {
  HEED_CHECK(options.step > 0 && options.tolerance > 0, ConfigError, "check_gradients: step ", options.step,
             " and tolerance ", options.tolerance, " must be positive");
  const Tensors leaves = leaves_of(inputs);
  const Tensor result = function(leaves);
  HEED_CHECK(result.dtype() == DType::f64, DTypeError, "check_gradients: the result is ", result.dtype(),
             "; it must be f64 for f64 inputs");
  HEED_CHECK(all_finite(result), NumericError, "check_gradients: the result holds a NaN or infinity");
  HEED_CHECK(result.requires_grad(), AutogradError,
             "check_gradients: the result has no graph: the function recorded nothing, or no input needs a "
             "gradient");
  const Tensor weights = weights_for(result);
  result.backward(weights);

  const NoGrad no_grad;
  const auto value = [&] { return sum(function(leaves) * weights).item<double>(); };
  HEED_CHECK(array_equal(function(leaves), result), StateError,
             "check_gradients: a second call gave another result; begin what is random with the same "
             "generator in each call");
  GradientReport report;
  for (size_t i = 0; i < leaves.size(); ++i)
    if (is_checked(leaves[i])) compare(leaves[i], static_cast<int>(i), value, options, report);
  const auto error = [](const auto& d) { return std::abs(d.gradient - d.slope); };
  std::stable_sort(report.wrong.begin(), report.wrong.end(), [&](const auto& a, const auto& b) {
    return error(a) > error(b) || (std::isnan(error(a)) && !std::isnan(error(b)));
  });
  return report;
}

void append_text(std::string& out, const GradientReport& report) {
  constexpr size_t kMaxLines = 10;
  out += concat(report.compared, " elements compared, ");
  if (report.wrong.empty()) {
    out += "all right";
    return;
  }
  out += concat(report.wrong.size(), " wrong");
  for (size_t i = 0; i < std::min(report.wrong.size(), kMaxLines); ++i) {
    const GradientReport::Difference& d = report.wrong[i];
    out += concat("\ninput ", d.input, ", element ", Shape(d.place), ": gradient ", d.gradient, ", slope ",
                  d.slope);
  }
  if (report.wrong.size() > kMaxLines) out += concat("\nand ", report.wrong.size() - kMaxLines, " more");
}

std::ostream& operator<<(std::ostream& out, const GradientReport& report) { return out << concat(report); }

}  // namespace heed
