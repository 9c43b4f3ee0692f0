#include <heed/nn/layers/embedding.h>
#include <heed/nn/parameter.h>

namespace heed::nn {

Embedding::Embedding(int64_t vocabulary, int64_t d_model, Generator& generator, double deviation) {
  HEED_CHECK(vocabulary > 0 && d_model > 0, ConfigError,
             "Embedding: sizes must be positive, got vocabulary = ", vocabulary, ", d_model = ", d_model);
  weight =
      make_parameter({vocabulary, d_model}, [&](const Tensor& x) { normal_(x, 0, deviation, generator); });
}

Tensor Embedding::operator()(const Tensor& ids, const EmbeddingOptions& options) const {
  return embedding(ids, weight, options);
}

void Embedding::visit(Visitor& v) { v("weight", weight); }

std::string Embedding::describe() const {
  return concat("Embedding(", weight.size(0), ", ", weight.size(1), ")");
}

}  // namespace heed::nn
