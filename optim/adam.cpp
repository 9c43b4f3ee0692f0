#include <cmath>

#include <heed/optim/adam.h>
#include <heed/optim/slice.h>

namespace heed::optim {
namespace {

const AdamOptions& checked(const AdamOptions& options) {
  for (const double beta : {options.beta1, options.beta2})
    HEED_CHECK(beta >= 0 && beta < 1, ConfigError, "Adam: betas must be in [0, 1), got ", options.beta1,
               " and ", options.beta2);
  HEED_CHECK(options.eps > 0 && std::isfinite(options.eps), ConfigError, "Adam: eps must be positive, got ",
             options.eps);
  return options;
}

}  // namespace

Adam::Adam(Parameters parameters, const AdamOptions& options) : Adam(std::move(parameters), options, false) {}

Adam::Adam(Parameters list, const AdamOptions& options, bool decoupled)
    : Optimizer(std::move(list), checked(options).lr, options.weight_decay.value_or(decoupled ? 0.01 : 0),
                options.groups,
                [](const Parameter&) {
                  return std::vector<std::string>{"m", "v"};
                }),
      options_(options),
      decoupled_(decoupled) {}

void Adam::step_slice(const Slice& slice) {
  visit_floating(parameters().dtype(), "Adam", [&]<class T>() {
    step_by_adam<T>(slice, parameters(), {options_.beta1, options_.beta2, options_.eps, decoupled_});
  });
}

}  // namespace heed::optim
