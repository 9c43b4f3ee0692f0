#include <map>

#include <heed/core/autograd/autograd.h>
#include <heed/core/ops.h>
#include <heed/optim/ema.h>

namespace heed::optim {

Ema::Ema(Parameters parameters, double decay) : parameters_(std::move(parameters)), decay_(decay) {
  HEED_CHECK(decay >= 0 && decay < 1, ConfigError, "Ema: decay must be in [0, 1), got ", decay);
  const NoGrad no_grad;
  for (const Parameter& parameter : parameters_)
    averages_.push_back(parameter.tensor.detach().clone().to(parameters_.gradient_dtype()));
}

// In this form an average of equal values is that value; decay and 1 - decay, each rounded, don't add up
// to 1.
void Ema::update() {
  HEED_CHECK(!swapped_in_, StateError, "Ema: update() while the averages are swapped in would average them");
  const NoGrad no_grad;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& average = averages_[i];
    const Tensor value = parameters_[static_cast<int64_t>(i)].tensor.detach().to(average.dtype());
    average.add_((value - average) * (1 - decay_));
  }
}

std::vector<std::pair<std::string, Tensor>> Ema::state() const {
  std::vector<std::pair<std::string, Tensor>> result;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Parameter& parameter = parameters_[static_cast<int64_t>(i)];
    result.emplace_back(parameter.name, averages_[i]);
    for (const std::string& alias : parameter.aliases) result.emplace_back(alias, averages_[i]);
  }
  return result;
}

void Ema::load_state(const std::vector<std::pair<std::string, Tensor>>& saved) {
  const std::map<std::string, Tensor> by_name(saved.begin(), saved.end());
  const auto live = state();
  for (const auto& [name, average] : live) {
    const auto found = by_name.find(name);
    HEED_CHECK(found != by_name.end(), CheckpointError, "Ema: '", name, "' is missing");
    HEED_CHECK(found->second.shape() == average.shape() && found->second.dtype() == average.dtype(),
               CheckpointError, "Ema: '", name, "' is ", found->second.dtype(), " ", found->second.shape(),
               ", expected ", average.dtype(), " ", average.shape());
  }
  HEED_CHECK(by_name.size() == live.size(), CheckpointError, "Ema: ", by_name.size(), " tensors, expected ",
             live.size(), "; are they another model's?");
  const NoGrad no_grad;
  for (const auto& [name, average] : live) average.copy_(by_name.at(name));
}

namespace {

// Swapping twice would take the averages for the parameters' own values.
bool& swapping_in(bool& swapped_in) {
  HEED_CHECK(!swapped_in, StateError, "EmaScope: the averages are swapped in already");
  return swapped_in;
}

}  // namespace

EmaScope::EmaScope(Ema& ema)
    : swapped_in_(swapping_in(ema.swapped_in_)), scope_(ema.parameters_, ema.averages_) {
  swapped_in_ = true;
}

EmaScope::~EmaScope() { swapped_in_ = false; }

}  // namespace heed::optim
