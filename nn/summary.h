// What a model is made of, as text and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <heed/nn/models/transformer_config.h>
#include <heed/nn/module.h>

namespace heed::nn {

struct ComponentCount {
  std::string name;        // a direct child's, or a parameter's own
  int64_t parameters = 0;  // a tied parameter counts where it comes first
};

/// Parameters of each direct part of the module, in its order.
std::vector<ComponentCount> count_parameters(Module& module);

/// One line for each direct part, and the total.
std::string component_table(Module& module);

/// One line for each parameter: name, whether it is frozen, shape, number.
std::string parameter_table(Module& module);

/// The nested modules, as describe() names them.
std::string module_tree(Module& module);

/// Floating-point operations of one target token's forward through a model with a source of equal length, the
/// products with weights alone: twice the weights that each token meets.
int64_t flops_per_token(const TransformerConfig& config);

/// What the products of queries with keys and of weights with values add, for sources and targets of so many
/// tokens: a causal query sees half of them.
int64_t attention_flops_per_token(const TransformerConfig& config, int64_t length);

}  // namespace heed::nn
