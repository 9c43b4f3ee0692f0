#include <algorithm>
#include <cmath>
#include <utility>

#include <heed/core/ops.h>
#include <heed/nn/decoding/ensemble.h>

namespace heed::nn {
namespace {

/// The logarithm of the mean of the probabilities that logits [rows, vocabulary] stand for. In the log domain
/// nothing underflows: what all models hold for very improbable keeps its order.
Tensor log_mean_probability(std::vector<Tensor> logits) {
  if (logits.size() == 1) return logits.front();
  for (Tensor& x : logits) x = log_softmax(x.to(DType::f32));
  return logsumexp(stack(logits, 0), {.axes = {0}}) - std::log(static_cast<double>(logits.size()));
}

class EnsembleDecoder final : public StepDecoder {
 public:
  explicit EnsembleDecoder(std::vector<std::unique_ptr<StepDecoder>> decoders)
      : decoders_(std::move(decoders)) {}

  int64_t rows() const override { return decoders_.front()->rows(); }
  Tensor step(const Tensor& ids) override {
    std::vector<Tensor> logits;
    for (const auto& decoder : decoders_) logits.push_back(decoder->step(ids));
    return log_mean_probability(std::move(logits));
  }
  void select(std::span<const int64_t> parents) override {
    for (const auto& decoder : decoders_) decoder->select(parents);
  }

 private:
  std::vector<std::unique_ptr<StepDecoder>> decoders_;
};

}  // namespace

Seq2SeqEnsemble::Seq2SeqEnsemble(std::vector<std::shared_ptr<Seq2SeqModel>> models)
    : models_(std::move(models)) {
  HEED_CHECK(!models_.empty(), ConfigError, "an ensemble of no models");
  for (size_t i = 0; i < models_.size(); ++i) {
    HEED_CHECK(models_[i], ConfigError, "model ", i + 1, " of the ensemble is null");
    HEED_CHECK(models_[i]->target_vocabulary() == target_vocabulary(), ConfigError, "model ", i + 1,
               " of the ensemble has a target vocabulary of ", models_[i]->target_vocabulary(),
               ", the first one of ", target_vocabulary());
  }
  eval();
}

Tensor Seq2SeqEnsemble::forward(const Tokens& source, const Tokens& target) const {
  std::vector<Tensor> logits;
  for (const auto& model : models_) logits.push_back(model->forward(source, target));
  return log_mean_probability(std::move(logits));
}

std::unique_ptr<StepDecoder> Seq2SeqEnsemble::start(const Tokens& source, int64_t hypotheses) const {
  std::vector<std::unique_ptr<StepDecoder>> decoders;
  for (const auto& model : models_) decoders.push_back(model->start(source, hypotheses));
  return std::make_unique<EnsembleDecoder>(std::move(decoders));
}

int64_t Seq2SeqEnsemble::max_target() const {
  int64_t least = Seq2SeqModel::max_target();
  for (const auto& model : models_) least = std::min(least, model->max_target());
  return least;
}

void Seq2SeqEnsemble::visit(Visitor& v) {
  for (size_t i = 0; i < models_.size(); ++i) v(concat("models.", i), *models_[i]);
}

}  // namespace heed::nn
