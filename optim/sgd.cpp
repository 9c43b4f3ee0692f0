#include <heed/core/dispatch.h>
#include <heed/optim/sgd.h>
#include <heed/optim/slice.h>

namespace heed::optim {
Sgd::Sgd(Parameters list, const SgdOptions& options)
    : Optimizer(std::move(list), options.rate, options.weight_decay, options.groups), options_(options) {
  HEED_CHECK(options.momentum >= 0 && options.momentum < 1, ConfigError,
             "Sgd: momentum must be in [0, 1), got ", options.momentum);
  HEED_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), ConfigError,
             "Sgd: nesterov needs momentum > 0 and dampening 0, got ", options.momentum, " and ",
             options.dampening);
  if (options.momentum > 0) momentum_ = parameters().make_arena(parameters().gradient_dtype());
}

void Sgd::step_slice(const Slice& slice) {
  visit_floating(parameters().dtype(), "Sgd", [&]<class T>() {
    using A = accumulator_t<T>;
    const auto gradients = gradient_parts<A>(parameters(), slice.parameters);
    HEED_DISPATCH(parameters().device(), sgd_step,
                  kernels::SgdStep<T>{.slice = step_slice_of<T>(slice, parameters(), masters(), gradients),
                                      .momentum_buffer = momentum_.defined() ? momentum_.data<A>() : nullptr,
                                      .momentum = options_.momentum,
                                      .dampening = options_.dampening,
                                      .nesterov = options_.nesterov,
                                      .step = step_tensor().data<int64_t>()});
  });
}

std::vector<std::pair<std::string, Tensor>> Sgd::arenas() const {
  if (!momentum_.defined()) return {};
  return {{"momentum", momentum_}};
}

}  // namespace heed::optim
