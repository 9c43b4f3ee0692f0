#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/layers/lora.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

Lora::Lora(Module& model, std::vector<LoraTarget> targets, const LoraOptions& options, Generator& generator)
    : options_(options), targets_(std::move(targets)) {
  HEED_CHECK(!targets_.empty(), ConfigError, "Lora: there is nothing to adapt");
  HEED_CHECK(options_.rank >= 1, ConfigError, "Lora: a rank of ", options_.rank, "; expected 1 or more");
  HEED_CHECK(std::isfinite(options_.alpha), ConfigError, "Lora: alpha is ", options_.alpha);
  for (LoraTarget& target : targets_) {
    const Tensor& weight = *target.weight;
    HEED_CHECK(weight.rank() == 2 && weight.dtype() == DType::f32, ConfigError, "Lora: ", target.name, " is ",
               weight.dtype(), ' ', weight.shape(), "; expected an f32 matrix");
    if (target.rows == 0) target.rows = weight.size(0) - target.first;
    HEED_CHECK(target.first >= 0 && target.rows > 0 && target.first + target.rows <= weight.size(0),
               ConfigError, "Lora: ", target.name, " is rows ", target.first, " to ",
               target.first + target.rows, " of ", weight.size(0));
  }
  std::sort(targets_.begin(), targets_.end(), [](const LoraTarget& x, const LoraTarget& y) {
    return std::tie(x.weight, x.first) < std::tie(y.weight, y.first);
  });
  for (size_t i = 0; i < targets_.size(); ++i) {
    const bool another = weights_.empty() || weights_.back().handle != targets_[i].weight;
    if (another) weights_.push_back({targets_[i].weight, i, i});
    weights_.back().last = i + 1;
    HEED_CHECK(another || targets_[i - 1].first + targets_[i - 1].rows <= targets_[i].first, ConfigError,
               "Lora: ", targets_[i - 1].name, " and ", targets_[i].name, " have rows in common");
  }
  const Device device = targets_.front().weight->device();
  for (const LoraTarget& target : targets_) {
    const int64_t in = target.weight->size(1);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    adapters_.push_back(
        {make_parameter({options_.rank, in}, [&](const Tensor& x) { uniform_(x, -bound, bound, generator); }),
         make_parameter({target.rows, options_.rank}, [](const Tensor& x) { x.fill_(0); })});
  }
  model.set_requires_grad(false);
  model.eval();
  if (device != kCpu) to(device);
}

// What the adapters of a weight add to it, [out, in].
Tensor Lora::difference(const Weight& weight) const {
  const double scale = options_.alpha / static_cast<double>(options_.rank);
  const TensorOptions like = weight.handle->options();
  const int64_t in = weight.handle->size(1);
  std::vector<Tensor> parts;
  int64_t row = 0;
  const auto fill_to = [&](int64_t next) {
    if (next > row) parts.push_back(zeros({next - row, in}, like));
  };
  for (size_t i = weight.first; i < weight.last; ++i) {
    fill_to(targets_[i].first);
    parts.push_back(matmul(adapters_[i].b, adapters_[i].a) * scale);
    row = targets_[i].first + targets_[i].rows;
  }
  fill_to(weight.handle->size(0));
  return parts.size() == 1 ? parts.front() : cat(parts, 0);
}

void Lora::merge() {
  const NoGrad no_grad;
  for (const Weight& weight : weights_) weight.handle->add_(difference(weight));
  for (const Adapter& adapter : adapters_) adapter.b.fill_(0);
}

void Lora::visit(Visitor& v) {
  for (size_t i = 0; i < targets_.size(); ++i) {
    v(concat(targets_[i].name, ".lora_A.weight"), adapters_[i].a);
    v(concat(targets_[i].name, ".lora_B.weight"), adapters_[i].b);
  }
}

std::string Lora::describe() const {
  return concat("Lora(rank ", options_.rank, ", alpha ", options_.alpha, ", ", targets_.size(), " matrices)");
}

LoraScope::LoraScope(const Lora& lora) : lora_(lora) {
  for (const Lora::Weight& weight : lora_.weights_) own_.push_back(*weight.handle);
  for (size_t i = 0; i < own_.size(); ++i) {
    const Lora::Weight& weight = lora_.weights_[i];
    *weight.handle = own_[i] + lora_.difference(weight);
  }
}

LoraScope::~LoraScope() {
  for (size_t i = 0; i < own_.size(); ++i) *lora_.weights_[i].handle = own_[i];
}

}  // namespace heed::nn
