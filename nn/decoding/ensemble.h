// Several sequence-to-sequence models that decode as one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <heed/nn/models/seq2seq.h>

namespace heed::nn {

/// Models with one target vocabulary whose distributions are averaged: at each step the probability of a
/// token is the arithmetic mean of those that the models give it, as in fairseq (arXiv 1904.01038). That mean
/// is a distribution as it stands, and a model that holds a token for impossible takes only its own part of
/// the probability away; the mean of log probabilities, as in Marian (arXiv 1804.00344), would leave nothing.
/// forward() and decoders give log probabilities, f32, computed in the log domain; of a single model they are
/// that model's own logits.
class Seq2SeqEnsemble final : public Seq2SeqModel {
 public:
  /// All models are set to evaluation mode. ConfigError unless there are some, of equal target vocabularies.
  explicit Seq2SeqEnsemble(std::vector<std::shared_ptr<Seq2SeqModel>> models);

  Tensor forward(const Tokens& source, const Tokens& target) const override;
  /// One decoder for each model, which follow the same hypotheses.
  std::unique_ptr<StepDecoder> start(const Tokens& source, int64_t hypotheses) const override;
  int64_t target_vocabulary() const override { return models_.front()->target_vocabulary(); }
  /// That of the model with the least.
  int64_t max_target() const override;

  const std::vector<std::shared_ptr<Seq2SeqModel>>& models() const { return models_; }
  void visit(Visitor& v) override;
  std::string describe() const override { return concat("Seq2SeqEnsemble(", models_.size(), " models)"); }

 private:
  std::vector<std::shared_ptr<Seq2SeqModel>> models_;
};

}  // namespace heed::nn
