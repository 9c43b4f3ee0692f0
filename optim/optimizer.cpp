#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include <heed/core/autograd/autograd.h>
#include <heed/core/base/int_math.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/optimizer.h>
#include <heed/optim/optimizer.h>

namespace heed::optim {
namespace {

constexpr int64_t kSlotElements = 64;  // whole lines, as Parameters has them

size_t find_group(const std::vector<Group>& groups, const Parameter& parameter) {
  for (size_t g = 0; g < groups.size(); ++g)
    for (const std::string& pattern : groups[g].patterns)
      if (parameter.fits(pattern)) return g;
  throw InternalError(concat("optimizer: no group takes the parameter '", parameter.name, "'"));
}

void check_rate(double lr) {
  HEED_CHECK(lr >= 0 && std::isfinite(lr), ConfigError,
             "optimizer: the learning rate must be finite and not negative, got ", lr);
}

void check_group(const Group& group, const Parameters& parameters) {
  HEED_CHECK(group.lr_factor >= 0 && std::isfinite(group.lr_factor), ConfigError,
             "optimizer: lr_factor must be finite and not negative, got ", group.lr_factor);
  HEED_CHECK(group.weight_decay >= 0 && std::isfinite(group.weight_decay), ConfigError,
             "optimizer: weight_decay must be finite and not negative, got ", group.weight_decay);
  HEED_CHECK(!group.patterns.empty(), ConfigError, "optimizer: a group has no patterns, so it takes nothing");
  for (const std::string& pattern : group.patterns)
    check_pattern("optimizer", pattern, {parameters.begin(), parameters.end()});
}

// For messages: which gradient made the norm what it is.
std::string first_bad_gradient(const Parameters& parameters) {
  for (const int64_t i : parameters.with_gradient())
    if (!all_finite(parameters.gradient(i)))
      return concat(", and the first bad gradient that of '", parameters[i].name, "'");
  return ", though each gradient is finite";
}

}  // namespace

Optimizer::Optimizer(Parameters parameters, double lr, double weight_decay, std::vector<Group> groups,
                     Roles roles)
    : parameters_(std::move(parameters)), groups_(std::move(groups)), roles_(std::move(roles)) {
  groups_.push_back({.patterns = {"*"}, .lr_factor = 1, .weight_decay = weight_decay});
  HEED_CHECK(parameters_.size() > 0, ConfigError, "optimizer: there are no parameters");
  const Device device = parameters_.device();
  check_rate(lr);
  for (const Group& group : groups_) check_group(group, parameters_);
  PooledVector<int64_t> trained;
  for (int64_t i = 0; i < parameters_.size(); ++i) {
    group_of_.push_back(find_group(groups_, parameters_[i]));
    if (parameters_[i].tensor.requires_grad()) trained.push_back(i);
  }
  places_.resize(group_of_.size());
  step_tensor_ = zeros({1}, {DType::i64, device});
  steps_ = zeros({parameters_.size()}, {DType::i64, device});
  rate_tensor_ = zeros({1}, {DType::i64, device});
  set_lr(lr);
  make_state(trained);
  parameters_.hold();
}

// ---- state

void Optimizer::make_state(const PooledVector<int64_t>& which) {
  const NoGrad no_grad;
  std::map<std::vector<std::string>, std::vector<int64_t>> by_roles;
  for (const int64_t i : which) by_roles[roles_(parameters_[i])].push_back(i);
  for (const auto& [roles, members] : by_roles) {
    int64_t elements = 0;
    for (const int64_t i : members) elements += round_up(parameters_[i].tensor.numel(), kSlotElements);
    const TensorOptions options{parameters_.gradient_dtype(), parameters_.device()};
    State state{.roles = roles, .arenas = {}, .masters = {}};
    for (size_t role = 0; role < roles.size(); ++role) state.arenas.push_back(zeros({elements}, options));
    if (parameters_.dtype() == DType::bf16) state.masters = zeros({elements}, options);
    states_.push_back(std::move(state));
    int64_t offset = 0;
    for (const int64_t i : members) {
      const Tensor& value = parameters_[i].tensor;
      places_[static_cast<size_t>(i)] = {states_.size() - 1, offset, value.version()};
      if (states_.back().masters.defined()) slot(states_.back().masters, i).copy_(value.detach());
      offset += round_up(value.numel(), kSlotElements);
    }
  }
}

void Optimizer::make_missing_state(const PooledVector<int64_t>& stepped) {
  PooledVector<int64_t> missing;
  for (const int64_t i : stepped)
    if (!has_state(i)) missing.push_back(i);
  if (missing.empty()) return;
  HEED_CHECK(
      !is_capturing(parameters_.device()), StateError, "optimizer: '", parameters_[missing[0]].name,
      "' was thawed and has no moments yet, which a captured step cannot make; thaw it before the step is "
      "first called");
  make_state(missing);
}

Tensor Optimizer::slot(const Tensor& arena, int64_t i) const {
  const Tensor& value = parameters_[i].tensor;
  const int64_t first = places_[static_cast<size_t>(i)].offset;
  return arena.slice(0, first, first + value.numel()).view(value.shape());
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state_of(int64_t i) const {
  std::vector<std::pair<std::string, Tensor>> result;
  if (!has_state(i)) return result;
  const State& state = states_[places_[static_cast<size_t>(i)].state];
  for (size_t role = 0; role < state.roles.size(); ++role)
    result.emplace_back(state.roles[role], slot(state.arenas[role], i));
  if (state.masters.defined()) result.emplace_back("master", slot(state.masters, i));
  return result;
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state() const {
  const NoGrad no_grad;
  std::vector<std::pair<std::string, Tensor>> result{{"step", step_tensor_}};
  for (int64_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].name;
    result.emplace_back("step." + name, steps_.slice(0, i, i + 1));
    for (const auto& entry : state_of(i)) result.emplace_back(concat(entry.first, '.', name), entry.second);
  }
  return result;
}

// A state that is checked, then taken.
class Optimizer::Loading {
 public:
  Loading(const Optimizer& optimizer, const std::vector<std::pair<std::string, Tensor>>& saved)
      : optimizer_(optimizer), parameters_(optimizer.parameters_) {
    for (const auto& entry : saved) {
      entries_[entry.first] = entry.second;
      counts_each_ |= entry.first.compare(0, 5, "step.") == 0;
    }
    step = take_count("step");
    for (int64_t i = 0; i < parameters_.size(); ++i) take_parameter(i);
    HEED_CHECK(entries_.empty(), CheckpointError, "optimizer state: ", entries_.size(),
               " tensors are unknown, the first of them '", entries_.begin()->first,
               "'; is it another optimizer's?");
  }

  int64_t step;
  std::vector<int64_t> steps;                          // of each parameter
  std::vector<std::map<std::string, Tensor>> moments;  // of each parameter; empty: they start anew
  PooledVector<int64_t> made_for;                      // parameters whose moments have no memory yet

 private:
  int64_t take_count(const std::string& name) {
    const Tensor tensor = take(name, {1}, DType::i64);
    const int64_t count = tensor.item<int64_t>();
    HEED_CHECK(count >= 0 && count < kMaxSteps, CheckpointError, "optimizer state: '", name, "' is ", count,
               ", no number of steps");
    return count;
  }

  void take_parameter(int64_t i) {
    const Parameter& parameter = parameters_[i];
    steps.push_back(counts_each_ ? take_count("step." + parameter.name) : step);
    moments.emplace_back();
    std::vector<std::string> roles = optimizer_.roles_(parameter);
    if (parameters_.dtype() == DType::bf16) roles.emplace_back("master");
    const bool has_any = std::any_of(roles.begin(), roles.end(), [&](const std::string& role) {
      return entries_.contains(concat(role, '.', parameter.name));
    });
    if (counts_each_ && steps.back() == 0 && !has_any) return;  // frozen until then
    for (const std::string& role : roles)
      moments.back()[role] =
          take(concat(role, '.', parameter.name), parameter.tensor.shape(), parameters_.gradient_dtype());
    if (!optimizer_.has_state(i)) made_for.push_back(i);
  }

  Tensor take(const std::string& name, const Shape& shape, DType dtype) {
    const auto found = entries_.find(name);
    HEED_CHECK(found != entries_.end(), CheckpointError, "optimizer state: '", name, "' is missing");
    const Tensor tensor = found->second;
    HEED_CHECK(tensor.shape() == shape && tensor.dtype() == dtype, CheckpointError, "optimizer state: '",
               name, "' is ", tensor.dtype(), " ", tensor.shape(), ", expected ", dtype, " ", shape);
    entries_.erase(found);
    return tensor;
  }

  static constexpr int64_t kMaxSteps = int64_t{1} << 53;  // as doubles count them

  const Optimizer& optimizer_;
  const Parameters& parameters_;
  std::map<std::string, Tensor> entries_;  // not taken yet
  bool counts_each_ = false;
};

void Optimizer::load_state(const std::vector<std::pair<std::string, Tensor>>& saved) {
  const NoGrad no_grad;
  const Loading loading(*this, saved);
  make_state(loading.made_for);
  step_tensor_.fill_(static_cast<double>(loading.step));
  steps_.copy_(tensor(loading.steps, {parameters_.size()}));
  for (int64_t i = 0; i < parameters_.size(); ++i) {
    const auto& moments = loading.moments[static_cast<size_t>(i)];
    for (const auto& [role, live] : state_of(i)) {
      if (const auto found = moments.find(role); found != moments.end())
        live.copy_(found->second);
      else if (role == "master")
        live.copy_(parameters_[i].tensor.detach());
      else
        live.zero_();
    }
  }
}

// ---- steps

void Optimizer::set_lr(double lr) {
  check_rate(lr);
  const Device device = parameters_.device();
  HEED_CHECK(
      !is_capturing(device), StateError,
      "optimizer: set_lr within a captured step would set the rate of every repetition; call it before "
      "the step");
  if (lr == lr_) return;
  HEED_DISPATCH(device, set_lr,
                kernels::SetLr{.lr = reinterpret_cast<double*>(rate_tensor_.data<int64_t>()), .value = lr});
  lr_ = lr;
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
  for (const Parameter& parameter : parameters_) result.without_gradient += parameter.tensor.requires_grad();
  result.without_gradient -= static_cast<int64_t>(stepped.size());
  const double* norm = nullptr;
  if (options.clip > 0 || options.measure_norm) {
    result.norm = parameters_.measure_gradient_norm();
    norm = reinterpret_cast<const double*>(result.norm.data<int64_t>());
    if (options.non_finite == NonFinite::raise) check_norm(result.gradient_norm());
  }
  make_missing_state(stepped);
  HEED_DISPATCH(parameters_.device(), advance_steps,
                kernels::AdvanceSteps{.step = step_tensor_.data<int64_t>(),
                                      .steps = steps_.data<int64_t>(),
                                      .stepped = stepped,
                                      .gradient_norm = norm});
  for (size_t group = 0; group < groups_.size(); ++group)
    for (size_t state = 0; state < states_.size(); ++state) {
      const Slice slice = slice_of(group, state, stepped, norm, options.clip);
      if (slice.entries.empty()) continue;
      step_slice(slice);
      note_writes(slice, options.non_finite);
    }
  parameters_.zero_grad();
  return result;
}

Optimizer::Slice Optimizer::slice_of(size_t group, size_t state, const PooledVector<int64_t>& stepped,
                                     const double* norm, double clip) const {
  Slice slice{.entries = {},
              .state = &states_[state],
              .written = false,
              .steps = steps_.data<int64_t>(),
              .lr = reinterpret_cast<const double*>(rate_tensor_.data<int64_t>()),
              .lr_factor = groups_[group].lr_factor,
              .weight_decay = groups_[group].weight_decay,
              .norm = norm,
              .clip = clip};
  slice.entries.reserve(stepped.size());
  bool written = is_capturing(parameters_.device());  // versions don't know what comes between repetitions
  for (const int64_t i : stepped) {
    const Place& place = places_[static_cast<size_t>(i)];
    if (group_of_[static_cast<size_t>(i)] != group || place.state != state) continue;
    slice.entries.push_back({i, place.offset});
    written |= place.version != parameters_[i].tensor.version();
  }
  slice.written = written && slice.state->masters.defined();
  return slice;
}

void Optimizer::note_writes(const Slice& slice, NonFinite non_finite) {
  // A step that the device skips has not looked at what was written.
  const bool may_have_skipped = slice.norm != nullptr && non_finite == NonFinite::skip;
  for (const Slice::Entry& entry : slice.entries) {
    const Tensor& value = parameters_[entry.index].tensor;
    value.bump_version();
    if (!slice.written || !may_have_skipped)
      places_[static_cast<size_t>(entry.index)].version = value.version();
  }
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
