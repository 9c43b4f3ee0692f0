// What an encoder is trained on, and how far the training has come: texts with labels, or pairs of texts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <heed/data/loader.h>
#include <heed/data/pair_batch.h>
#include <heed/data/text/text_pairs.h>
#include <heed/nn/text/text_classifier.h>
#include <heed/train/trainer.h>

namespace heed::apps {

enum class LabelColumn { detect, first, second };

struct LabeledTexts {
  std::vector<std::string> texts, labels;

  /// Each label once, in order.
  std::vector<std::string> kinds() const;
};

/// The column that has the labels; detected: that of fewer different texts.
LabelColumn label_column(const data::TextPairs& pairs, LabelColumn column);
/// Lines label<TAB>text or text<TAB>label, as pairs.
LabeledTexts labeled_texts(const data::TextPairs& pairs, LabelColumn column);

/// The part of the texts that a classifier gives their labels. DataError for a label that it does not have.
double accuracy(const nn::TextClassifier& classifier, const LabeledTexts& texts);

/// Something that a Trainer trains: the module, its batches and their loss.
class FineTuning {
 public:
  virtual ~FineTuning() = default;

  /// All but what is frozen for good; the optimizer's parameters.
  virtual nn::Module& module() = 0;
  virtual train::BatchSource batches() = 0;
  virtual train::LossFunction loss() const = 0;
  virtual int64_t samples() const = 0;
  virtual int64_t batches_per_epoch() const = 0;
  virtual std::string fingerprint() const = 0;
  /// On texts that were held back, from 0 to 1: labels, or answers found among all others.
  virtual double accuracy(const data::TextPairs& pairs) const = 0;
  /// A folder that `embed` opens.
  virtual void save(const std::string& folder) const = 0;
};

/// A new head on the encoder, and the encoder as far as it is not frozen. Where it is frozen as a whole its
/// vectors are made once. `frozen`: patterns of names (encoder.…, head.…).
std::unique_ptr<FineTuning> fine_tune_labels(nn::SentenceEncoder encoder, const data::TextPairs& pairs,
                                             LabelColumn column, double label_smoothing,
                                             const std::vector<std::string>& frozen,
                                             const data::LoaderOptions& options);

/// The encoder, so that the two texts of a pair come closer than the others of its batch (nn::ranking_loss).
std::unique_ptr<FineTuning> fine_tune_pairs(nn::SentenceEncoder encoder, const data::TextPairs& pairs,
                                            double scale, const std::vector<std::string>& frozen,
                                            const data::LoaderOptions& options);

}  // namespace heed::apps
