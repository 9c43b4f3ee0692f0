// Token embedding.
#pragma once

#include <heed/core/ops.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// A row of `weight` for each id. Begins normal around 0.
class Embedding : public Module {
 public:
  Embedding(int64_t vocabulary, int64_t d_model, Generator& generator = default_generator(),
            double deviation = 1);

  /// ids i64 [..] → [.., d_model], with scale, positions and dropout fused.
  Tensor operator()(const Tensor& ids, const EmbeddingOptions& options = {}) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  Tensor weight;  // [vocabulary, d_model]
};

}  // namespace heed::nn
