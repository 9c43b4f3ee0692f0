// Layer normalisation (Ba, Kiros and Hinton, arXiv 1607.06450).
#pragma once

#include <heed/nn/layers/norm.h>

namespace heed::nn {

/// To mean 0 and variance 1, scaled and shifted.
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(int64_t size, double eps = 1e-5) : Norm(NormKind::layer, size, eps) {}
};

}  // namespace heed::nn
