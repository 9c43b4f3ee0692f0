// Normalisation of channels, the second axis: batch norm and group norm.
#pragma once

#include <heed/core/channel_norm.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// While training, by the statistics of the batch, of which it keeps running means; in evaluation by these
/// (arXiv 1502.03167). Parameters and buffers have PyTorch's names: weight, bias, running_mean, running_var
/// (of the variance by the count less one) and num_batches_tracked.
class BatchNorm : public Module {
 public:
  /// `ranks`: how many axes x may have, from and to. ConfigError unless channels and eps are positive and
  /// momentum is in [0, 1].
  BatchNorm(const char* name, int least_rank, int most_rank, int64_t channels, double eps, double momentum);

  /// ShapeError for another rank or number of channels, and while training for channels with a single value.
  Tensor operator()(const Tensor& x) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  double eps, momentum;              // running = (1 - momentum) running + momentum batch
  Tensor weight, bias;               // [channels]; 1 and 0 at first
  Tensor running_mean, running_var;  // [channels]; 0 and 1 at first
  Tensor num_batches_tracked;        // i64 []

 private:
  const char* name_;
  int least_rank_, most_rank_;
};

/// Of x [batch, channels] or [batch, channels, length].
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t channels, double eps = 1e-5, double momentum = 0.1)
      : BatchNorm("BatchNorm1d", 2, 3, channels, eps, momentum) {}
};

/// Of x [batch, channels, height, width].
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t channels, double eps = 1e-5, double momentum = 0.1)
      : BatchNorm("BatchNorm2d", 4, 4, channels, eps, momentum) {}
};

/// Groups of channels by themselves, an element of the batch at a time (Wu and He, arXiv 1803.08494).
class GroupNorm : public Module {
 public:
  /// ConfigError unless the groups divide the channels.
  GroupNorm(int64_t groups, int64_t channels, double eps = 1e-5);

  Tensor operator()(const Tensor& x) const { return group_norm(x, groups, weight, bias, eps); }

  void visit(Visitor& v) override;
  std::string describe() const override;

  int64_t groups;
  double eps;
  Tensor weight, bias;  // [channels]; 1 and 0 at first
};

}  // namespace heed::nn
