// Root mean square normalisation (Zhang and Sennrich, arXiv 1910.07467).
#pragma once

#include <heed/nn/layers/norm.h>

namespace heed::nn {

/// Divided by the root mean square, and scaled.
class RMSNorm : public Norm {
 public:
  explicit RMSNorm(int64_t size, double eps = 1e-6) : Norm(NormKind::rms, size, eps) {}
};

}  // namespace heed::nn
