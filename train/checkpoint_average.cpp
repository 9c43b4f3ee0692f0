#include <algorithm>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/train/checkpoint_average.h>

namespace heed::train {

CheckpointAverage::CheckpointAverage(Parameters parameters, int64_t count)
    : parameters_(std::move(parameters)) {
  HEED_CHECK(count > 0, ConfigError, "an average of ", count, " checkpoints; expected at least 1");
  steps_ = full({count}, -1, {DType::i64, kCpu});
  kept_.resize(static_cast<size_t>(count));
  for (std::vector<Tensor>& weights : kept_)
    for (const Parameter& parameter : parameters_)
      weights.push_back(zeros(parameter.tensor.shape(), {parameter.tensor.dtype(), kCpu}));
}

std::vector<int64_t> CheckpointAverage::newest_first() const {
  const int64_t* const steps = steps_.data<int64_t>();
  std::vector<int64_t> places;
  for (int64_t i = 0; i < steps_.numel(); ++i)
    if (steps[i] >= 0) places.push_back(i);
  std::sort(places.begin(), places.end(), [&](int64_t a, int64_t b) { return steps[a] > steps[b]; });
  return places;
}

void CheckpointAverage::add(int64_t step) {
  int64_t* const steps = steps_.data<int64_t>();
  int64_t* const end = steps + steps_.numel();
  int64_t* oldest = std::find(steps, end, step);
  if (oldest == end) oldest = std::min_element(steps, end);
  *oldest = step;
  const NoGrad no_grad;
  for (int64_t i = 0; i < parameters_.size(); ++i)
    kept_[static_cast<size_t>(oldest - steps)][static_cast<size_t>(i)].copy_(parameters_[i].tensor.detach());
}

// Summed from the newest on, the present weights first.
std::vector<Tensor> CheckpointAverage::mean(int64_t step) const {
  const NoGrad no_grad;
  std::vector<Tensor> sums;
  for (const Parameter& parameter : parameters_)
    sums.push_back(parameter.tensor.detach().clone().to(kCpu).to(parameters_.gradient_dtype()));
  int64_t count = 1;
  for (const int64_t place : newest_first()) {
    if (steps_.data<int64_t>()[place] == step) continue;  // the present weights
    if (count == steps_.numel()) break;
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i].add_(kept_[static_cast<size_t>(place)][i].to(sums[i].dtype()));
    ++count;
  }
  for (Tensor& sum : sums) sum = sum / static_cast<double>(count);
  return sums;
}

std::vector<std::pair<std::string, Tensor>> CheckpointAverage::state() const {
  std::vector<std::pair<std::string, Tensor>> result{{"steps", steps_}};
  for (size_t k = 0; k < kept_.size(); ++k)
    for (size_t i = 0; i < kept_[k].size(); ++i)
      result.emplace_back(concat(k, '.', parameters_[static_cast<int64_t>(i)].name), kept_[k][i]);
  return result;
}

}  // namespace heed::train
