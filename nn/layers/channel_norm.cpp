#include <heed/core/ops.h>
#include <heed/nn/layers/channel_norm.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

Tensor filled(int64_t size, double value) {
  return make_parameter({size}, [&](const Tensor& x) { x.fill_(value); });
}

// running = (1 - momentum) running + momentum batch
void follow(const Tensor& running, const Tensor& batch, double momentum) {
  running.mul_(1 - momentum).add_(batch * momentum);
}

}  // namespace

BatchNorm::BatchNorm(const char* name, int least_rank, int most_rank, int64_t channels, double eps,
                     double momentum)
    : eps(eps), momentum(momentum), name_(name), least_rank_(least_rank), most_rank_(most_rank) {
  HEED_CHECK(channels > 0, ConfigError, name, ": channels must be positive, got ", channels);
  HEED_CHECK(eps > 0, ConfigError, name, ": eps must be positive, got ", eps);
  HEED_CHECK(momentum >= 0 && momentum <= 1, ConfigError, name, ": momentum is ", momentum,
             "; it must be in [0, 1]");
  weight = filled(channels, 1);
  bias = filled(channels, 0);
  running_mean = zeros({channels});
  running_var = ones({channels});
  num_batches_tracked = zeros({}, {.dtype = DType::i64});
}

Tensor BatchNorm::operator()(const Tensor& x) const {
  HEED_CHECK(x.rank() >= least_rank_ && x.rank() <= most_rank_ && x.shape()[1] == weight.size(0), ShapeError,
             name_, ": x is ", x.shape(), ", expected [batch, ", weight.size(0),
             most_rank_ == 4 ? ", height, width]" : "] or one axis more");
  if (!training()) return batch_norm_by(x, running_mean, running_var, weight, bias, eps);
  const int64_t count = x.numel() / x.shape()[1];
  HEED_CHECK(count != 1, ShapeError, name_, ": training needs more than one value for each channel, x is ",
             x.shape());
  const BatchNormResult result = batch_norm(x, weight, bias, eps);
  const NoGrad no_grad;
  follow(running_mean, result.mean, momentum);
  follow(running_var, result.variance * (static_cast<double>(count) / static_cast<double>(count - 1)),
         momentum);
  num_batches_tracked.add_(ones({}, num_batches_tracked.options()));
  return result.output;
}

void BatchNorm::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
  v.buffer("running_mean", running_mean);
  v.buffer("running_var", running_var);
  v.buffer("num_batches_tracked", num_batches_tracked);
}

std::string BatchNorm::describe() const {
  return concat(name_, "(", weight.size(0), ", eps ", eps, ", momentum ", momentum, ")");
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, double eps) : groups(groups), eps(eps) {
  HEED_CHECK(groups > 0 && channels > 0 && channels % groups == 0, ConfigError, "GroupNorm: ", channels,
             " channels do not divide into ", groups, " groups");
  HEED_CHECK(eps > 0, ConfigError, "GroupNorm: eps must be positive, got ", eps);
  weight = filled(channels, 1);
  bias = filled(channels, 0);
}

void GroupNorm::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

std::string GroupNorm::describe() const {
  return concat("GroupNorm(", groups, ", ", weight.size(0), ", eps ", eps, ")");
}

}  // namespace heed::nn
