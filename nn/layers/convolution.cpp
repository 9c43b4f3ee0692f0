#include <cmath>
#include <tuple>

#include <heed/core/ops.h>
#include <heed/nn/layers/convolution.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

std::string text(Size2d size) { return concat(size.height, " x ", size.width); }

void check_channels(const char* name, int64_t in, int64_t out, int64_t groups) {
  HEED_CHECK(in > 0 && out > 0, ConfigError, name, ": channels must be positive, got in = ", in,
             ", out = ", out);
  HEED_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, ConfigError, name, ": ", groups,
             " groups do not divide ", in, " and ", out, " channels");
}

/// A weight of that shape, whose sums have all terms but its first axis, and its bias.
std::pair<Tensor, Tensor> make_weight(const char* name, const Shape& shape, bool with_bias,
                                      Generator& generator) {
  int64_t terms = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) {
    HEED_CHECK(shape[axis] > 0, ConfigError, name, ": the kernel's size must be positive, got ", shape[axis]);
    terms *= shape[axis];
  }
  const double bound = 1 / std::sqrt(static_cast<double>(terms));
  const auto draw = [&](const Tensor& x) { uniform_(x, -bound, bound, generator); };
  const Tensor weight = make_parameter(shape, draw);
  return {weight, with_bias ? make_parameter({shape[0]}, draw) : Tensor()};
}

}  // namespace

Conv2d::Conv2d(int64_t in, int64_t out, Size2d kernel, const Convolution2dOptions& options, bool with_bias,
               Generator& generator)
    : options(options) {
  check_channels("Conv2d", in, out, options.groups);
  std::tie(weight, bias) =
      make_weight("Conv2d", {out, in / options.groups, kernel.height, kernel.width}, with_bias, generator);
}

void Conv2d::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

std::string Conv2d::describe() const {
  return concat("Conv2d(", weight.size(1) * options.groups, ", ", weight.size(0), ", ",
                text({weight.size(2), weight.size(3)}), ", stride ", text(options.stride), ", padding ",
                text(options.padding), options.groups > 1 ? concat(", groups ", options.groups) : "",
                bias.defined() ? ")" : ", no bias)");
}

Conv1d::Conv1d(int64_t in, int64_t out, int64_t kernel, const Convolution1dOptions& options, bool with_bias,
               Generator& generator)
    : options(options) {
  check_channels("Conv1d", in, out, options.groups);
  std::tie(weight, bias) = make_weight("Conv1d", {out, in / options.groups, kernel}, with_bias, generator);
}

void Conv1d::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
}

std::string Conv1d::describe() const {
  return concat("Conv1d(", weight.size(1) * options.groups, ", ", weight.size(0), ", ", weight.size(2),
                ", stride ", options.stride, ", padding ", options.padding,
                options.groups > 1 ? concat(", groups ", options.groups) : "",
                bias.defined() ? ")" : ", no bias)");
}

std::string MaxPool2d::describe() const { return concat("MaxPool2d(", text(kernel), ")"); }
std::string AvgPool2d::describe() const { return concat("AvgPool2d(", text(kernel), ")"); }

}  // namespace heed::nn
