// Functions of one operand as cases of check_op.
#pragma once

#include "reference.h"

namespace heed::test {

struct UnaryCase {
  const char* name;
  std::function<Tensor(const Tensor&)> function;
  std::function<double(double)> value;
  bool positive = false;
};

/// Each case in awkward shapes, with so many ulps of OpCheck for forward and gradient.
inline void check_unary(const std::vector<UnaryCase>& cases, double ulps = 2) {
  for (const UnaryCase& op : cases)
    for (const Shape& shape : awkward_shapes())
      check_op({.name = concat(op.name, " ", shape),
                .inputs = {op.positive ? uniform(shape, 0.25, 3, 1) : normal(shape, 1)},
                .function = [=](const Tensors& in) { return one(op.function(in[0])); },
                .reference =
                    [=](const Tensors& in) {
                      return one(build(shape, [&](const Place& p) { return op.value(at(in[0], p)); }));
                    },
                .ulps = ulps,
                .gradient_ulps = ulps});
}

}  // namespace heed::test
