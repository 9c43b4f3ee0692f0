// Numbers to look at while a model is built and trained: the spread of values, and how large gradients are.
#pragma once

#include <string>
#include <vector>

#include <heed/nn/module.h>

namespace heed::nn {

/// Of all elements of a tensor.
struct Statistics {
  double mean = 0, deviation = 0;  // deviation with n in the denominator
  double minimum = 0, maximum = 0;
};

/// Computed in f64, on the CPU. ShapeError for a tensor without elements.
Statistics statistics(const Tensor& x);

/// NumericError that names `what` and says which if an element is NaN or infinite.
void check_finite(const Tensor& x, const std::string& what);

/// The same for all parameters of a module, whose names follow that of `file`.
void check_finite(Module& module, const std::string& file);

struct GradientNorm {
  std::string name;
  double gradient = 0;  // Euclidean norm; 0 where backward has not reached the parameter
  double value = 0;     // of the parameter itself
};

/// The norms of each parameter's gradient and values, in the module's order. The stacked projections of
/// attention are split: "self_attn.in_proj_weight[q]", "[k]", "[v]". Call it between backward() and the
/// optimizer's step, which clears gradients.
std::vector<GradientNorm> gradient_norms(Module& module);

/// Norms of parts instead of parameters: all whose names begin with the same `parts` of the dotted name are
/// one, "layers.0" of "layers.0.linear1.weight" for 2.
std::vector<GradientNorm> join_norms(const std::vector<GradientNorm>& norms, int parts);

/// One line for each: name, norm of the gradient, norm of the values, and the quotient of the two.
std::string gradient_table(const std::vector<GradientNorm>& norms);

}  // namespace heed::nn
