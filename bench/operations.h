// The operations that the kernel benchmarks time, by name, on inputs that follow a rule instead of a
// generator: the same in all programs. bench/peers/torch_kernels.py has the same table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <heed/core/tensor.h>

namespace heed::bench {

using Sizes = std::vector<int64_t>;

/// An operation on inputs of one shape. `call` takes the rate of dropout.
struct Operation {
  std::vector<Tensor> inputs;  // that get gradients
  std::function<Tensor(double)> call;
  bool random = false;  // each program draws other numbers, which are not to be compared
};

/// Row-wise ones on rows x cols; (causal_)attention of sequences x length x heads x width; linear and product
/// of rows x in x out; lstm and gru of sequences x length x width; conv2d of batch x channels x size x
/// outputs x kernel x stride. ConfigError for another name.
Operation operation(const std::string& name, const Sizes& sizes, DType dtype);

/// The names of the row-wise ones.
std::vector<std::string> row_wise_operations();

/// What a row-wise one's inputs and results take for these sizes.
double row_wise_bytes(const std::string& name, const Sizes& sizes, DType dtype);

/// Element i is (7 i² + 11 i + 97 seed) mod 2003, spread over -2 … 2.
Tensor filled(const Shape& shape, int64_t seed, DType dtype);

}  // namespace heed::bench
