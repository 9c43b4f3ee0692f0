// The cases of the kernel benchmarks: operations with autograd, called as a program calls them.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include <heed/core/tensor.h>

namespace heed::bench {

struct KernelCase {
  std::string name;   // operation/direction/shape, all that bench/peers/torch_kernels.py needs to know
  double bytes;       // that have to be read and written; 0 if operations decide
  double operations;  // a multiply-add counts as two; 0 if bytes decide
  std::string floor;  // the case that does as many bytes or operations at the machine's own rate
};

/// The operations of bench/operations.h, some with their gradients; `tiny` ones to test the programs with.
/// Copies and a product stand for the machine.
std::vector<KernelCase> kernel_cases(bool tiny, DType dtype);

/// The one of `all` that is the floor of `c`.
const KernelCase& floor_of(const KernelCase& c, const std::vector<KernelCase>& all);

/// One case, ready to run. Its inputs follow a rule instead of a generator: the same in all programs.
class Kernel {
 public:
  /// ConfigError for a name that kernel_cases() does not make.
  Kernel(const std::string& name, DType dtype);

  const std::string& name() const { return name_; }
  /// Once, with dropout where the operation has it.
  void run() const { work_(); }
  /// Up to 64 elements of each result, which come without dropout: the output, or the gradients. Nothing of
  /// random numbers, which are others in each program, nor of rows' gradients in bf16, which others round
  /// often.
  std::vector<std::vector<double>> values() const { return values_(); }

 private:
  std::string name_;
  std::function<void()> work_;
  std::function<std::vector<std::vector<double>>()> values_;
};

/// The median of as many runs as fit into a twentieth of a second, three at least, after one that is not
/// counted.
double median_seconds(const Kernel& kernel);

/// Kernels by name, of which the last two are kept: a case and its floor.
class Kernels {
 public:
  explicit Kernels(DType dtype) : dtype_(dtype) {}
  const Kernel& operator()(const std::string& name);

 private:
  DType dtype_;
  std::list<Kernel> kept_;
};

}  // namespace heed::bench
