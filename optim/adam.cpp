#include <cmath>

#include <heed/core/dispatch.h>
#include <heed/optim/adam.h>
#include <heed/optim/slice.h>

namespace heed::optim {
Adam::Adam(Parameters parameters, const AdamOptions& options) : Adam(std::move(parameters), options, false) {}

Adam::Adam(Parameters list, const AdamOptions& options, bool decoupled)
    : Optimizer(std::move(list), options.rate, options.weight_decay.value_or(decoupled ? 0.01 : 0),
                options.groups),
      options_(options),
      decoupled_(decoupled) {
  for (const double beta : {options.beta1, options.beta2})
    HEED_CHECK(beta >= 0 && beta < 1, ConfigError, "Adam: betas must be in [0, 1), got ", options.beta1,
               " and ", options.beta2);
  HEED_CHECK(options.eps > 0 && std::isfinite(options.eps), ConfigError, "Adam: eps must be positive, got ",
             options.eps);
  const DType dtype = parameters().gradient_dtype();
  m_ = parameters().make_arena(dtype);
  v_ = parameters().make_arena(dtype);
}

void Adam::step_slice(const Slice& slice) {
  visit_floating(parameters().dtype(), "Adam", [&]<class T>() {
    using A = accumulator_t<T>;
    const auto gradients = gradient_parts<A>(parameters(), slice.parameters);
    HEED_DISPATCH(parameters().device(), adam_step,
                  kernels::AdamStep<T>{.slice = step_slice_of<T>(slice, parameters(), masters(), gradients),
                                       .m = m_.data<A>(),
                                       .v = v_.data<A>(),
                                       .beta1 = options_.beta1,
                                       .beta2 = options_.beta2,
                                       .eps = options_.eps,
                                       .decoupled = decoupled_,
                                       .step = step_tensor().data<int64_t>()});
  });
}

}  // namespace heed::optim
