// Convolution and pooling layers.
#pragma once

#include <heed/core/convolution.h>
#include <heed/core/generator.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// x [batch, in, height, width] → [batch, out, ..]. Weight and bias begin uniform in ±1/√(terms of a sum).
class Conv2d : public Module {
 public:
  /// ConfigError unless sizes are positive and the groups divide both channels.
  Conv2d(int64_t in, int64_t out, Size2d kernel, const Convolution2dOptions& options = {},
         bool with_bias = true, Generator& generator = default_generator());

  Tensor operator()(const Tensor& x) const { return conv2d(x, weight, bias, options); }

  void visit(Visitor& v) override;
  std::string describe() const override;

  Convolution2dOptions options;
  Tensor weight;  // [out, in / groups, kernel height, kernel width]
  Tensor bias;    // [out], or undefined
};

/// The same along one axis: x [batch, in, length].
class Conv1d : public Module {
 public:
  Conv1d(int64_t in, int64_t out, int64_t kernel, const Convolution1dOptions& options = {},
         bool with_bias = true, Generator& generator = default_generator());

  Tensor operator()(const Tensor& x) const { return conv1d(x, weight, bias, options); }

  void visit(Visitor& v) override;
  std::string describe() const override;

  Convolution1dOptions options;
  Tensor weight;  // [out, in / groups, kernel]
  Tensor bias;    // [out], or undefined
};

/// The largest element under a window.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2d kernel, const Pool2dOptions& options = {}) : kernel(kernel), options(options) {}

  Tensor operator()(const Tensor& x) const { return max_pool2d(x, kernel, options); }

  void visit(Visitor&) override {}
  std::string describe() const override;

  Size2d kernel;
  Pool2dOptions options;
};

/// The mean under a window.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2d kernel, const Pool2dOptions& options = {}) : kernel(kernel), options(options) {}

  Tensor operator()(const Tensor& x) const { return avg_pool2d(x, kernel, options); }

  void visit(Visitor&) override {}
  std::string describe() const override;

  Size2d kernel;
  Pool2dOptions options;
};

}  // namespace heed::nn
