#include <heed/core/runtime/dispatch.h>
#include <heed/optim/lion.h>
#include <heed/optim/slice.h>

namespace heed::optim {
namespace {

const LionOptions& checked(const LionOptions& options) {
  for (const double beta : {options.beta1, options.beta2})
    HEED_CHECK(beta >= 0 && beta < 1, ConfigError, "Lion: betas must be in [0, 1), got ", options.beta1,
               " and ", options.beta2);
  return options;
}

}  // namespace

Lion::Lion(Parameters list, const LionOptions& options)
    : Optimizer(std::move(list), checked(options).lr, options.weight_decay, options.groups,
                [](const Parameter&) { return std::vector<std::string>{"m"}; }),
      options_(options) {}

void Lion::step_slice(const Slice& slice) {
  visit_floating(parameters().dtype(), "Lion", [&]<class T>() {
    const KernelSlice<T> kernel(slice, parameters());
    HEED_DISPATCH(
        parameters().device(), lion_step,
        kernels::LionStep<T>{
            .slice = kernel.args(), .m = kernel.arena(0), .beta1 = options_.beta1, .beta2 = options_.beta2});
  });
}

}  // namespace heed::optim
