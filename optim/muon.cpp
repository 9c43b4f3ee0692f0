#include <algorithm>
#include <bit>
#include <cmath>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/optim/muon.h>
#include <heed/optim/slice.h>

namespace heed::optim {
namespace {

const MuonOptions& checked(const MuonOptions& options, const Parameters& parameters) {
  for (const double value : {options.momentum, options.beta1, options.beta2})
    HEED_CHECK(value >= 0 && value < 1, ConfigError, "Muon: momentum and betas must be in [0, 1), got ",
               options.momentum, ", ", options.beta1, " and ", options.beta2);
  HEED_CHECK(options.iterations >= 1, ConfigError, "Muon: iterations must be positive, got ",
             options.iterations);
  HEED_CHECK(options.eps > 0 && std::isfinite(options.eps), ConfigError, "Muon: eps must be positive, got ",
             options.eps);
  for (const std::string& pattern : options.adam)
    check_pattern("Muon", pattern, {parameters.begin(), parameters.end()});
  return options;
}

bool is_for_adam(const Parameter& parameter, const std::vector<std::string>& patterns) {
  return parameter.tensor.rank() != 2 ||
         std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return parameter.fits(pattern); });
}

double scale_of(MuonScale scale, const Shape& shape) {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  if (scale == MuonScale::original) return std::sqrt(std::max(1.0, rows / columns));
  return 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace

Muon::Muon(const Parameters& list, const MuonOptions& options)
    : Optimizer(list, checked(options, list).lr, options.weight_decay, options.groups,
                [patterns = options.adam](const Parameter& parameter) {
                  return is_for_adam(parameter, patterns) ? std::vector<std::string>{"m", "v"}
                                                          : std::vector<std::string>{"momentum"};
                }),
      options_(options),
      one_(tensor<int64_t>({std::bit_cast<int64_t>(1.0)}).to(list.device())) {}

void Muon::step_slice(const Slice& slice) {
  visit_floating(parameters().dtype(), "Muon", [&]<class T>() {
    if (slice.state->roles.size() == 2)
      return step_by_adam<T>(slice, parameters(), {options_.beta1, options_.beta2, options_.eps, true});
    for (const Slice::Entry& entry : slice.entries)
      if (parameters()[entry.index].tensor.numel() > 0) step_matrix<T>(slice, entry);
  });
}

// Two steps of SGD: one with momentum from 0 on gives what is to be made orthogonal, one with that as its
// gradient steps the matrix. Decay divided by the scale by which the step multiplies it is decoupled decay.
template <class T>
void Muon::step_matrix(const Slice& slice, const Slice::Entry& entry) {
  using A = accumulator_t<T>;
  const Tensor &value = parameters()[entry.index].tensor, &gradient = parameters().gradient(entry.index);
  const Device device = parameters().device();
  const Tensor update = zeros(value.shape(), gradient.options());
  const kernels::StepPart<A> to_update{gradient.data<A>(), value.numel(), update.data<A>(), entry.offset,
                                       entry.index};
  HEED_DISPATCH(device, sgd_step,
                kernels::SgdStep<A>{.slice = {.parts = {&to_update, 1},
                                              .master = nullptr,
                                              .written = false,
                                              .steps = slice.steps,
                                              .lr = reinterpret_cast<const double*>(one_.data<int64_t>()),
                                              .lr_factor = -1,
                                              .weight_decay = 0,
                                              .gradient_norm = slice.norm,
                                              .clip = slice.clip},
                                    .momentum_buffer = slice.state->arenas[0].data<A>(),
                                    .momentum = options_.momentum,
                                    .dampening = 0,
                                    .nesterov = options_.nesterov});
  const Tensor direction = orthogonalize(update, options_.iterations).contiguous();
  const double scale = scale_of(options_.scale, value.shape());
  const Tensor& masters = slice.state->masters;
  const kernels::StepPart<T> to_value{direction.data<A>(), value.numel(), value.data<T>(), entry.offset,
                                      entry.index};
  HEED_DISPATCH(device, sgd_step,
                kernels::SgdStep<T>{.slice = {.parts = {&to_value, 1},
                                              .master = masters.defined() ? masters.data<A>() : nullptr,
                                              .written = slice.written,
                                              .steps = slice.steps,
                                              .lr = slice.lr,
                                              .lr_factor = slice.lr_factor * scale,
                                              .weight_decay = slice.weight_decay / scale,
                                              .gradient_norm = slice.norm,
                                              .clip = 0},
                                    .momentum_buffer = nullptr,
                                    .momentum = 0,
                                    .dampening = 0,
                                    .nesterov = false});
}

// Newton and Schulz, with Jordan's coefficients, which raise small singular values fastest. The products are
// smallest where rows are the fewer.
Tensor orthogonalize(const Tensor& matrix, int64_t iterations) {
  HEED_CHECK(matrix.rank() == 2, ShapeError, "orthogonalize: needs a matrix, got ", matrix.shape());
  const bool tall = matrix.size(0) > matrix.size(1);
  Tensor x = tall ? matrix.transpose(0, 1) : matrix;
  x = x / (norm(x) + 1e-7);
  for (int64_t i = 0; i < iterations; ++i) {
    const Tensor gram = matmul(x, x.transpose(0, 1));
    x = x * 3.4445 + matmul(gram * -4.7750 + matmul(gram, gram) * 2.0315, x);
  }
  return tall ? x.transpose(0, 1) : x;
}

}  // namespace heed::optim
