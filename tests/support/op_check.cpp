#include "op_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tally.h"

namespace heed::test {
namespace {

constexpr double kDifferenceStep = 1e-5;
constexpr double kGradientRelative = 1e-5;  // of the largest gradient element
constexpr int64_t kMaxElements = 48;        // elements of one input that are differentiated one by one

// splitmix64: test data must not depend on the generator under test.
double uniform_at(uint64_t seed, uint64_t i) {
  uint64_t z = seed * 0x9E3779B97F4A7C15ull + (i + 1) * 0xD1B54A32D192ED03ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

Tally gradients_checked{"gradients"};  // against central differences in f64
Tally on_device_checked{"on_device"};  // operations on a CUDA device against f64

bool is_float(const Tensor& x) { return is_floating(x.dtype()); }

// Inputs in another dtype, on another device, as leaves that require grad where `wanted` says so.
Tensors prepare(const Tensors& inputs, DType dtype, Device device, const std::vector<bool>& wanted,
                bool strided = false) {
  Tensors result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      result.push_back({});
      continue;
    }
    Tensor x = (is_float(inputs[i]) ? inputs[i].to(dtype) : inputs[i]).to(device);
    x = (strided ? strided_copy(x) : x.clone()).detach();
    if (wanted[i]) x.set_requires_grad();
    result.push_back(x);
  }
  return result;
}

std::vector<bool> floating_inputs(const Tensors& inputs) {
  std::vector<bool> result;
  for (const Tensor& x : inputs) result.push_back(x.defined() && is_float(x));
  return result;
}

Tensor weight_for(const Tensor& output, size_t index) {
  return uniform(output.shape(), -1, 1, 1000 + index).to(output.dtype()).to(output.device());
}

// Backward of Σ weight * output, without using any other operation.
void backward_all(const Tensors& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].requires_grad()) outputs[i].backward(weight_for(outputs[i], i), {.retain_graph = true});
}

double weighted_sum(const Tensors& outputs) {
  double total = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_float(outputs[i])) continue;
    const std::vector<double> y = outputs[i].to(DType::f64).to_vector<double>();
    const std::vector<double> w = weight_for(outputs[i], i).to(DType::f64).to_vector<double>();
    for (size_t j = 0; j < y.size(); ++j) total += w[j] * y[j];
  }
  return total;
}

Tensors gradients(const Tensors& inputs) {
  Tensors result;
  for (const Tensor& x : inputs) result.push_back(x.defined() ? x.grad() : Tensor());
  return result;
}

// Gradients of one run of `function`.
Tensors run_gradients(const std::function<Tensors(const Tensors&)>& function, const Tensors& inputs) {
  backward_all(function(inputs));
  return gradients(inputs);
}

void expect_close(const Tensor& got, const Tensor& want, double tolerance, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what << " is missing";
  EXPECT_EQ(got.shape(), want.shape()) << what;
  const double difference = max_difference(got, want);
  EXPECT_LE(difference, tolerance) << what << "\ngot  " << got << "\nwant " << want;
}

// Of fourth order: the step can be large enough that rounding does not matter.
double central_difference(double& x, const std::function<double()>& f) {
  const double kept = x, h = kDifferenceStep * std::max(1.0, std::abs(kept));
  const auto at = [&](double value) {
    x = value;
    return f();
  };
  const double near = at(kept + h) - at(kept - h), far = at(kept + 2 * h) - at(kept - 2 * h);
  x = kept;
  return (8 * near - far) / (12 * h);
}

void check_central_differences(const OpCheck& check, const Tensors& analytic) {
  NoGrad no_grad;
  for (size_t i = 0; i < check.inputs.size(); ++i) {
    if (!check.inputs[i].defined() || !is_float(check.inputs[i]) || check.inputs[i].numel() == 0) continue;
    Tensors inputs = prepare(check.inputs, DType::f64, kCpu, std::vector<bool>(check.inputs.size(), false));
    double* x = inputs[i].data<double>();
    const std::vector<double> gradient = analytic[i].to_vector<double>();
    const double scale = std::max(1.0, max_abs(analytic[i]));
    const int64_t count = inputs[i].numel(), step = std::max<int64_t>(1, count / kMaxElements);
    for (int64_t j = 0; j < count; j += step) {
      const double numeric = central_difference(x[j], [&] { return weighted_sum(check.function(inputs)); });
      EXPECT_NEAR(gradient[static_cast<size_t>(j)], numeric, kGradientRelative * scale)
          << "gradient of input " << i << ", element " << j;
    }
  }
}

void check_subsets(const OpCheck& check, const Tensors& full) {
  const std::vector<bool> floating = floating_inputs(check.inputs);
  std::vector<size_t> candidates;
  for (size_t i = 0; i < floating.size(); ++i)
    if (floating[i]) candidates.push_back(i);
  for (unsigned bits = 0; bits + 1 < (1u << candidates.size()); ++bits) {
    std::vector<bool> wanted(check.inputs.size(), false);
    for (size_t c = 0; c < candidates.size(); ++c) wanted[candidates[c]] = (bits >> c) & 1;
    const Tensors inputs = prepare(check.inputs, DType::f64, kCpu, wanted);
    const Tensors got = run_gradients(check.function, inputs);
    for (size_t i : candidates) {
      const std::string what = concat("gradient of input ", i, " where only subset ", bits, " requires one");
      if (wanted[i])
        expect_close(got[i], full[i], 1e-12 * std::max(1.0, max_abs(full[i])), what);
      else
        EXPECT_FALSE(got[i].defined()) << what;
    }
  }
}

void check_double(const OpCheck& check) {
  SCOPED_TRACE("f64 on the cpu");
  const std::vector<bool> wanted =
      check.differentiable ? floating_inputs(check.inputs) : std::vector<bool>(check.inputs.size(), false);
  const Tensors inputs = prepare(check.inputs, DType::f64, kCpu, wanted);
  const Tensors outputs = check.function(inputs);
  Tensors want;
  {
    NoGrad no_grad;
    want = check.reference(
        prepare(check.inputs, DType::f64, kCpu, std::vector<bool>(check.inputs.size(), false)));
  }
  ASSERT_EQ(outputs.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(outputs[i].dtype(), want[i].dtype()) << "output " << i;
    const double scale = std::max({1.0, check.magnitude, max_abs(want[i])});
    expect_close(outputs[i].detach(), want[i], is_float(want[i]) ? 1e-12 * scale : 0, concat("output ", i));
  }
  const Tensors strided_outputs = check.function(prepare(check.inputs, DType::f64, kCpu, wanted, true));
  for (size_t i = 0; i < want.size(); ++i)
    expect_close(strided_outputs[i].detach(), want[i],
                 is_float(want[i]) ? 1e-12 * std::max(1.0, max_abs(want[i])) : 0,
                 concat("output ", i, " from strided inputs"));
  if (!check.differentiable) return;

  backward_all(outputs);
  const Tensors once = [&] {
    Tensors copies;
    for (const Tensor& g : gradients(inputs)) copies.push_back(g.defined() ? g.clone() : Tensor());
    return copies;
  }();
  for (size_t i = 0; i < inputs.size(); ++i)
    ASSERT_TRUE(!wanted[i] || once[i].defined()) << "no gradient reached input " << i;
  check_central_differences(check, once);
  if (std::any_of(check.inputs.begin(), check.inputs.end(),
                  [](const Tensor& x) { return x.defined() && is_float(x) && x.numel() > 0; }))
    ++gradients_checked.count;

  backward_all(check.function(inputs));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (wanted[i])
      expect_close(inputs[i].grad(), once[i] * 2.0, 1e-12 * std::max(1.0, 2 * max_abs(once[i])),
                   concat("gradient of input ", i, " after a second backward"));
  const Tensors strided = prepare(check.inputs, DType::f64, kCpu, wanted, true);
  const Tensors from_strided = run_gradients(check.function, strided);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (wanted[i])
      expect_close(from_strided[i], once[i], 1e-12 * std::max(1.0, max_abs(once[i])),
                   concat("gradient of strided input ", i));
  check_subsets(check, once);
}

double largest_error(const Tensors& got, const Tensors& want, size_t i) {
  return got.empty() ? 0 : max_difference(got[i], want[i]);
}

/// The results in f64 on inputs rounded to a narrower dtype, and how far off each may be there.
struct Expected {
  DType dtype;
  Tensors inputs;  // f64
  std::vector<bool> wanted;
  Tensors outputs, gradients;
  std::vector<double> output_error, gradient_error;
};

Expected expected_in(const OpCheck& check, DType dtype) {
  Expected e;
  e.dtype = dtype;
  e.wanted =
      check.differentiable ? floating_inputs(check.inputs) : std::vector<bool>(check.inputs.size(), false);
  for (const Tensor& x : check.inputs)
    e.inputs.push_back(x.defined() && is_float(x) ? x.to(dtype).to(DType::f64) : x);
  const Tensors inputs = prepare(e.inputs, DType::f64, kCpu, e.wanted);
  e.outputs = check.function(inputs);
  Tensors plain_inputs, plain;
  if (check.plain) {
    plain_inputs = prepare(e.inputs, dtype, kCpu, e.wanted);
    plain = check.plain(plain_inputs);
  }
  const double unit = epsilon(dtype);
  const auto allowed = [&](double times, const Tensors& naive, const Tensors& exact, double ulps, size_t i) {
    if (!exact[i].defined() || !is_float(exact[i])) return 0.0;
    return times * largest_error(naive, exact, i) +
           ulps * unit * std::max(check.magnitude, max_abs(exact[i]));
  };
  for (size_t i = 0; i < e.outputs.size(); ++i)
    e.output_error.push_back(allowed(2, plain, e.outputs, check.ulps, i));
  if (!check.differentiable) return e;
  backward_all(e.outputs);
  if (check.plain) backward_all(plain);
  e.gradients = gradients(inputs);
  const Tensors naive = gradients(plain_inputs);
  for (size_t i = 0; i < e.gradients.size(); ++i)
    e.gradient_error.push_back(e.wanted[i] ? allowed(3, naive, e.gradients, check.gradient_ulps, i) : 0);
  return e;
}

void expect_outputs(const Expected& e, const Tensors& got, Device device, const std::string& when) {
  ASSERT_EQ(got.size(), e.outputs.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].device(), device);
    const Tensor there = got[i].detach().to(kCpu);
    expect_close(is_float(e.outputs[i]) ? there.to(DType::f64) : there, e.outputs[i].detach(),
                 e.output_error[i], concat("output ", i, when));
  }
}

void expect_gradients(const Expected& e, const Tensors& inputs, const std::vector<bool>& wanted, double times,
                      const std::string& when) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !is_float(inputs[i])) continue;
    const Tensor got = inputs[i].grad();
    const std::string what = concat("gradient of input ", i, when);
    ASSERT_EQ(got.defined(), wanted[i]) << what;
    if (wanted[i])
      expect_close(got.to(kCpu).to(DType::f64), e.gradients[i] * times, times * e.gradient_error[i], what);
  }
}

// Where one floating input alone requires a gradient, and where all but one do.
void check_some_wanted(const OpCheck& check, const Expected& e, Device device) {
  const auto floating = std::count(e.wanted.begin(), e.wanted.end(), true);
  for (size_t one = 0; one < e.wanted.size() && floating > 1; ++one) {
    if (!e.wanted[one]) continue;
    for (const bool alone : {true, false}) {
      if (!alone && floating == 2) continue;  // the other one alone
      std::vector<bool> wanted = e.wanted;
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = wanted[i] && (i == one) == alone;
      const Tensors inputs = prepare(e.inputs, e.dtype, device, wanted);
      backward_all(check.function(inputs));
      expect_gradients(e, inputs, wanted, 1,
                       concat(alone ? " where only input " : " where all but input ", one, " require one"));
    }
  }
}

// A narrower dtype, on any device.
void check_dtype(const OpCheck& check, const Expected& e, Device device) {
  SCOPED_TRACE(concat(e.dtype, " on ", device));
  for (const bool strided : {false, true}) {
    const std::string when = strided ? " from strided inputs" : "";
    const Tensors inputs = prepare(e.inputs, e.dtype, device, e.wanted, strided);
    const Tensors outputs = check.function(inputs);
    expect_outputs(e, outputs, device, when);
    if (!check.differentiable) continue;
    backward_all(outputs);
    expect_gradients(e, inputs, e.wanted, 1, when);
    backward_all(check.function(inputs));
    expect_gradients(e, inputs, e.wanted, 2, " after a second backward" + when);
  }
  if (check.differentiable) check_some_wanted(check, e, device);
}

}  // namespace

void check_op(const OpCheck& check) {
  SCOPED_TRACE(check.name);
  for (DType dtype : check.dtypes) {
    if (dtype == DType::f64) {
      check_double(check);
    } else {
      const Expected expected = expected_in(check, dtype);
      for (Device device : devices()) {
        if (!device.is_cpu() && std::count(check.cuda.begin(), check.cuda.end(), dtype) == 0) continue;
        check_dtype(check, expected, device);
        on_device_checked.count += !device.is_cpu();
      }
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void check_f32(const std::function<Tensors(DType, Device)>& results) {
  const auto run = [&](DType dtype, Device device) {
    Tensors values;
    for (const Tensor& x : results(dtype, device))
      values.push_back(x.detach().to(kCpu).to(DType::f64).clone());
    return values;
  };
  const Tensors exact = run(DType::f64, kCpu), plain = run(DType::f32, kCpu);
  for (const Device device : devices()) {
    if (device.is_cpu()) continue;
    const Tensors got = run(DType::f32, device);
    ASSERT_EQ(got.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      const double ulp = epsilon(DType::f32) * std::max(1.0, max_abs(exact[i]));
      EXPECT_LE(max_difference(got[i], exact[i]), 4 * max_difference(plain[i], exact[i]) + 2 * ulp)
          << "result " << i << " on " << device;
    }
  }
}

void check_gradients(const std::string& name, const Tensors& leaves, const std::function<Tensors()>& function,
                     int64_t most_elements) {
  SCOPED_TRACE(name);
  bool any = false;
  for (const Tensor& leaf : leaves) leaf.zero_grad();
  backward_all(function());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor& leaf = leaves[i];
    ASSERT_EQ(leaf.dtype(), DType::f64);
    ASSERT_TRUE(leaf.grad().defined()) << "no gradient reached leaf " << i;
    const std::vector<double> gradient = leaf.grad().to_vector<double>();
    const double scale = std::max(1.0, max_abs(leaf.grad()));
    any |= leaf.numel() > 0;
    const int64_t step = std::max<int64_t>(1, (leaf.numel() + most_elements - 1) / most_elements);
    const NoGrad no_grad;
    for (int64_t j = 0; j < leaf.numel(); j += step) {
      const double numeric = central_difference(leaf.data<double>()[j], [&] {
        leaf.bump_version();
        return weighted_sum(function());
      });
      EXPECT_NEAR(gradient[static_cast<size_t>(j)], numeric, kGradientRelative * scale)
          << "leaf " << i << " of shape " << leaf.shape() << ", element " << j;
    }
    leaf.bump_version();
  }
  if (any) ++gradients_checked.count;
}

Tensor uniform(const Shape& shape, double low, double high, uint64_t seed) {
  const Tensor x = empty(shape, {.dtype = DType::f64});
  double* values = x.data<double>();
  for (int64_t i = 0; i < x.numel(); ++i)
    values[i] = low + (high - low) * uniform_at(seed, static_cast<uint64_t>(i));
  return x;
}

Tensor normal(const Shape& shape, uint64_t seed) {
  const Tensor x = empty(shape, {.dtype = DType::f64});
  double* values = x.data<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto k = static_cast<uint64_t>(i);
    const double radius = std::sqrt(-2 * std::log(1 - uniform_at(seed, 2 * k)));
    values[i] = radius * std::cos(6.283185307179586 * uniform_at(seed, 2 * k + 1));
  }
  return x;
}

double max_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return std::numeric_limits<double>::infinity();
  const std::vector<double> x = a.detach().to(kCpu).to(DType::f64).to_vector<double>();
  const std::vector<double> y = b.detach().to(kCpu).to(DType::f64).to_vector<double>();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if ((std::isnan(x[i]) && std::isnan(y[i])) || x[i] == y[i]) continue;
    const double difference = std::abs(x[i] - y[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

double max_abs(const Tensor& x) {
  double largest = 0;
  for (double value : x.detach().to(kCpu).to(DType::f64).to_vector<double>())
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

Tensor strided_copy(const Tensor& x) {
  if (x.rank() == 0) return x.clone();
  Shape wide = x.shape();
  wide[wide.rank() - 1] = 2 * wide[wide.rank() - 1] + 3;  // every second element, from the third on
  const Tensor buffer =
      is_floating(x.dtype()) ? full(wide, std::nan(""), x.options()) : zeros(wide, x.options());
  const Tensor view = buffer.slice(-1, 3, wide[wide.rank() - 1], 2);
  view.copy_(x.detach());
  return view;
}

std::vector<Device> devices(DType dtype) {
  std::vector<Device> result = {kCpu};
  if (dtype != DType::f64 && cuda_device_count() > 0) result.push_back(cuda_device());
  return result;
}

}  // namespace heed::test
