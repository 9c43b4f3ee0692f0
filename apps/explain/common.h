// What the commands of explain share.
#pragma once

#include <string>
#include <vector>

#include <heed/core/generator.h>
#include <heed/core/tensor.h>

#include "apps/common/figures/presentation.h"
#include "apps/explain/commands.h"

namespace heed::apps {

/// Applies the settings of every command and opens its presentation. Everything here is computed in f64, so
/// that the numbers do not depend on the machine: DeviceError for a device other than the CPU.
Presentation present(const ExplainSettings& settings);

/// The words between spaces. DataError for none, or more than fit into a figure.
std::vector<std::string> split_words(const std::string& sentence);

/// "0", "1", …
std::vector<std::string> numbers_as_text(int64_t count);

/// N(0, 1) in f64.
Tensor normal_numbers(const Shape& shape, Generator& generator);

/// The largest difference of two tensors of one shape, or of all elements from a number.
double largest_difference(const Tensor& a, const Tensor& b);
double largest_difference(const Tensor& a, double b);

/// Shapes of what a model computes, each beside the one that it should have.
class Shapes {
 public:
  explicit Shapes(Presentation& p) : p_(p) {}

  /// ShapeError if they differ.
  void add(const std::string& what, const Shape& shape, const Shape& expected);
  void show() { p_.table("shapes", table_); }

 private:
  Presentation& p_;
  Table table_{{{"what"}, {"shape"}, {"expected"}, {""}}, {}};
};

/// Attention weights [queries, keys] with the words on both axes, from 0 to 1.
Heatmap attention_map(const std::string& title, const Tensor& weights, const std::vector<std::string>& words,
                      int decimals);

}  // namespace heed::apps
