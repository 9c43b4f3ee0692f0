// Initial values of parameters.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <heed/core/generator.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// fan_in is the size of the last axis of a matrix, fan_out that of the first.
enum class Initializer {
  pytorch,          // what the modules' constructors do; leaves values as they are
  xavier_uniform,   // ±√(6 / (fan_in + fan_out))
  xavier_normal,    // σ = √(2 / (fan_in + fan_out))
  kaiming_uniform,  // ±√(6 / fan_in)
  kaiming_normal,   // σ = √(2 / fan_in)
  normal,           // σ given
  zeros
};

/// One of "pytorch", "xavier_uniform", …; ConfigError on anything else.
Initializer parse_initializer(const std::string& name);

/// Fills one tensor. Xavier and Kaiming need a matrix (ShapeError).
void initialize(const Tensor& tensor, Initializer initializer, Generator& generator, double deviation = 0.02);

/// What to do with the parameters whose name a pattern fits: * stands for any run of characters.
struct InitRule {
  std::string pattern;
  Initializer initializer = Initializer::xavier_uniform;
  double deviation = 0.02;  // of `normal`
  int64_t stacked = 1;      // as many matrices on top of each other, each drawn with fans of its own
  bool optional = false;    // whether there need be no such parameter
};

/// Applies, to each parameter, the first rule whose pattern fits one of its names; others stay as they are.
/// Before anything changes: ConfigError for a pattern that fits no parameter and need do so or a deviation
/// that cannot be, ShapeError for Xavier and Kaiming on other than matrices and where what is stacked does
/// not divide the rows.
void initialize(Module& module, const std::vector<InitRule>& rules,
                Generator& generator = default_generator());

/// `initializer` on every matrix and zeros on every bias; norm weights stay 1. The usual choice for a
/// Transformer.
std::vector<InitRule> matrix_rules(Initializer initializer, double deviation = 0.02);

}  // namespace heed::nn
