#include <bit>
#include <cmath>
#include <unordered_map>

#include <heed/core/autograd.h>
#include <heed/core/base/pattern.h>
#include <heed/core/creation.h>
#include <heed/core/dispatch.h>
#include <heed/core/ops.h>
#include <heed/kernels/optimizer.h>
#include <heed/optim/optimizer.h>

namespace heed::optim {
namespace {

int32_t find_group(const std::vector<Group>& groups, const std::string& name) {
  for (size_t g = 0; g < groups.size(); ++g)
    for (const std::string& pattern : groups[g].patterns)
      if (matches(pattern, name)) return static_cast<int32_t>(g);
  throw InternalError(concat("optimizer: no group takes the parameter '", name, "'"));
}

void check_rate(double rate) {
  HEED_CHECK(rate >= 0 && std::isfinite(rate), ConfigError,
             "optimizer: the learning rate must be finite and not negative, got ", rate);
}

// For messages: which gradient made the norm what it is.
std::string first_bad_gradient(const Parameters& parameters) {
  for (const int64_t i : parameters.with_gradient())
    if (!all_finite(parameters.gradient(i)))
      return concat(", and the first bad gradient that of '", parameters[i].name, "'");
  return ", though each gradient is finite";
}

}  // namespace

Optimizer::Optimizer(Parameters parameters, double rate, double weight_decay, std::vector<Group> groups)
    : parameters_(std::move(parameters)), groups_(std::move(groups)) {
  groups_.push_back({.patterns = {"*"}, .rate_factor = 1, .weight_decay = weight_decay});
  HEED_CHECK(parameters_.size() > 0, ConfigError, "optimizer: there are no parameters");
  check_rate(rate);
  for (const Group& group : groups_) {
    HEED_CHECK(group.rate_factor >= 0 && std::isfinite(group.rate_factor), ConfigError,
               "optimizer: rate_factor must be finite and not negative, got ", group.rate_factor);
    HEED_CHECK(group.weight_decay >= 0 && std::isfinite(group.weight_decay), ConfigError,
               "optimizer: weight_decay must be finite and not negative, got ", group.weight_decay);
  }
  for (const Parameter& parameter : parameters_) group_of_.push_back(find_group(groups_, parameter.name));
  parameters_.hold();
  const Device device = parameters_.device();
  step_tensor_ = zeros({1}, {DType::i64, device});
  rate_tensor_ = zeros({1}, {DType::i64, device});
  set_rate(rate);
  if (parameters_.dtype() == DType::bf16) {
    masters_ = parameters_.make_arena(DType::f32);
    masters_.copy_(parameters_.values().detach());
  }
}

void Optimizer::set_rate(double rate) {
  check_rate(rate);
  const Device device = parameters_.device();
  HEED_CHECK(
      !is_capturing(device), StateError,
      "optimizer: set_rate within a captured step would set the rate of every repetition; call it before "
      "the step");
  if (rate == rate_) return;
  HEED_DISPATCH(
      device, set_rate,
      kernels::SetRate{.rate = reinterpret_cast<double*>(rate_tensor_.data<int64_t>()), .value = rate});
  rate_ = rate;
}

int64_t Optimizer::steps() const { return step_tensor_.item<int64_t>(); }

double StepResult::gradient_norm() const {
  return norm.defined() ? std::bit_cast<double>(norm.item<int64_t>()) : 0;
}

bool StepResult::skipped() const { return !std::isfinite(gradient_norm()); }

void Optimizer::check_norm(double norm) const {
  HEED_CHECK(std::isfinite(norm), NumericError, "step ", steps() + 1, ": the gradient norm is ", norm,
             first_bad_gradient(parameters_), "; lower the rate, or skip such steps");
}

StepResult Optimizer::step(const StepOptions& options) {
  HEED_CHECK(options.clip >= 0 && !std::isnan(options.clip), ConfigError,
             "optimizer: clip must be positive, got ", options.clip);
  NoGrad no_grad;
  StepResult result;
  const PooledVector<int64_t> stepped = parameters_.with_gradient();
  result.without_gradient = parameters_.size() - static_cast<int64_t>(stepped.size());
  const double* norm = nullptr;
  if (options.clip > 0 || options.measure_norm) {
    result.norm = parameters_.measure_gradient_norm();
    norm = reinterpret_cast<const double*>(result.norm.data<int64_t>());
    if (options.non_finite == NonFinite::raise) check_norm(result.gradient_norm());
  }
  HEED_DISPATCH(parameters_.device(), advance_step,
                kernels::AdvanceStep{.step = step_tensor_.data<int64_t>(), .gradient_norm = norm});
  const auto* rate = reinterpret_cast<const double*>(rate_tensor_.data<int64_t>());
  for (size_t g = 0; g < groups_.size(); ++g) {
    Slice slice{{}, rate, groups_[g].rate_factor, groups_[g].weight_decay, norm, options.clip};
    slice.parameters.reserve(stepped.size());
    for (const int64_t i : stepped)
      if (group_of_[static_cast<size_t>(i)] == static_cast<int32_t>(g)) slice.parameters.push_back(i);
    if (!slice.parameters.empty()) step_slice(slice);
  }
  for (const Parameter& parameter : parameters_) parameter.tensor.bump_version();
  parameters_.zero_grad();
  return result;
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state() const {
  std::vector<std::pair<std::string, Tensor>> result{{"step", step_tensor_}};
  std::vector<std::pair<std::string, Tensor>> all = arenas();
  if (masters_.defined()) all.emplace_back("master", masters_);
  for (const auto& entry : all)
    for (int64_t i = 0; i < parameters_.size(); ++i)
      result.emplace_back(concat(entry.first, '.', parameters_[i].name), parameters_.slot(entry.second, i));
  return result;
}

void Optimizer::load_state(const std::vector<std::pair<std::string, Tensor>>& saved) {
  std::unordered_map<std::string, Tensor> by_name(saved.begin(), saved.end());
  const auto live = state();
  for (const auto& entry : live) {
    const auto found = by_name.find(entry.first);
    HEED_CHECK(found != by_name.end(), CheckpointError, "optimizer state: '", entry.first, "' is missing");
    HEED_CHECK(found->second.shape() == entry.second.shape() && found->second.dtype() == entry.second.dtype(),
               CheckpointError, "optimizer state: '", entry.first, "' is ", found->second.dtype(), " ",
               found->second.shape(), ", expected ", entry.second.dtype(), " ", entry.second.shape());
  }
  HEED_CHECK(by_name.size() == live.size(), CheckpointError, "optimizer state: ", by_name.size(),
             " tensors, expected ", live.size(), "; is it another optimizer's?");
  NoGrad no_grad;
  for (const auto& entry : live) entry.second.copy_(by_name.at(entry.first));
}

double clip_gradient_norm(const Parameters& parameters, double max_norm) {
  HEED_CHECK(max_norm > 0, ConfigError, "clip_gradient_norm: max_norm must be positive, got ", max_norm);
  NoGrad no_grad;
  const double norm = parameters.gradient_norm();
  HEED_CHECK(std::isfinite(norm), NumericError, "clip_gradient_norm: the gradient norm is ", norm,
             first_bad_gradient(parameters));
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1)
    for (const int64_t i : parameters.with_gradient()) parameters.gradient(i).mul_(scale);
  return norm;
}

}  // namespace heed::optim
