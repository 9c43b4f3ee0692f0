// A sentence encoder with a head that tells kinds of texts apart.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <heed/nn/layers/linear.h>
#include <heed/nn/text/sentence_encoder.h>

namespace heed::nn {

/// Logits of labels, linear in what the encoder's pooling gives of a text. Parameters: encoder.…,
/// head.weight, head.bias.
class TextClassifier : public Module {
 public:
  /// The head begins as nn::Linear does, of the encoder's dtype and on its device. ConfigError unless there
  /// are two labels or more, all different.
  TextClassifier(SentenceEncoder encoder, std::vector<std::string> labels,
                 Generator& generator = default_generator());

  /// Logits [sequences, labels].
  Tensor forward(const Tokens& tokens) const { return head(encoder_.pool(tokens)); }
  /// f32 [texts, labels] on the CPU. In evaluation mode several threads may call it. Errors as of
  /// SentenceEncoder::encode().
  Tensor probabilities(const std::vector<std::string>& texts, const SentenceOptions& options = {}) const;

  const SentenceEncoder& encoder() const { return encoder_; }
  const std::vector<std::string>& labels() const { return labels_; }
  void visit(Visitor& v) override;
  std::string describe() const override;

  Linear head;

 private:
  SentenceEncoder encoder_;
  std::vector<std::string> labels_;
};

/// The encoder's folder (save_sentence_encoder), with classifier.json (the labels) and classifier.safetensors
/// (weight and bias of the head, f32). Errors as of save_sentence_encoder().
void save_text_classifier(TextClassifier& classifier, const std::string& folder);

/// Such a folder, in evaluation mode. Errors as of load_sentence_encoder(); CheckpointError where the head
/// does not fit encoder and labels.
std::unique_ptr<TextClassifier> load_text_classifier(const std::string& folder, Device device = kCpu,
                                                     DType dtype = DType::f32);

}  // namespace heed::nn
