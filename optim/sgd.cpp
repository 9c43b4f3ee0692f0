#include <cmath>

#include <heed/core/runtime/dispatch.h>
#include <heed/optim/sgd.h>
#include <heed/optim/slice.h>

namespace heed::optim {
namespace {

const SgdOptions& checked(const SgdOptions& options) {
  HEED_CHECK(options.momentum >= 0 && options.momentum < 1, ConfigError,
             "Sgd: momentum must be in [0, 1), got ", options.momentum);
  HEED_CHECK(std::isfinite(options.dampening) && options.dampening >= 0, ConfigError,
             "Sgd: dampening must be finite and not negative, got ", options.dampening);
  HEED_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), ConfigError,
             "Sgd: nesterov needs momentum > 0 and dampening 0, got ", options.momentum, " and ",
             options.dampening);
  return options;
}

}  // namespace

Sgd::Sgd(Parameters list, const SgdOptions& options)
    : Optimizer(std::move(list), checked(options).lr, options.weight_decay, options.groups,
                [has_momentum = options.momentum > 0](const Parameter&) {
                  return has_momentum ? std::vector<std::string>{"momentum"} : std::vector<std::string>();
                }),
      options_(options) {}

void Sgd::step_slice(const Slice& slice) {
  visit_floating(parameters().dtype(), "Sgd", [&]<class T>() {
    const KernelSlice<T> kernel(slice, parameters());
    HEED_DISPATCH(parameters().device(), sgd_step,
                  kernels::SgdStep<T>{.slice = kernel.args(),
                                      .momentum_buffer = options_.momentum > 0 ? kernel.arena(0) : nullptr,
                                      .momentum = options_.momentum,
                                      .dampening = options_.dampening,
                                      .nesterov = options_.nesterov});
  });
}

}  // namespace heed::optim
