#include <algorithm>

#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>
#include <heed/core/ops.h>
#include <heed/nn/pretrained/detail/settings_file.h>
#include <heed/nn/pretrained/detail/written_json.h>
#include <heed/nn/text/text_classifier.h>
#include <heed/nn/weights.h>

namespace heed::nn {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;
constexpr size_t kMaxLabels = 1 << 16;

const std::vector<std::string>& checked(const std::vector<std::string>& labels) {
  std::vector<std::string> sorted = labels;
  std::ranges::sort(sorted);
  HEED_CHECK(labels.size() >= 2 && std::ranges::adjacent_find(sorted) == sorted.end(), ConfigError,
             "a classifier needs two labels or more, all different; got ", labels.size());
  return labels;
}

std::vector<std::string> read_labels(const std::string& file) {
  const heed::detail::Json settings = detail::parse_json_object(read_whole_file(file, kMaxConfigBytes), file);
  const heed::detail::Json* const found = settings.find("labels");
  const auto labels = found ? detail::texts_of(*found) : std::nullopt;
  HEED_CHECK(labels, CheckpointError, "'", file, "': labels must be a list of texts");
  return *labels;
}

}  // namespace

TextClassifier::TextClassifier(SentenceEncoder encoder, std::vector<std::string> labels, Generator& generator)
    : head(encoder.width(), std::ssize(checked(labels)), true, generator),
      encoder_(std::move(encoder)),
      labels_(std::move(labels)) {
  const Tensor& like = encoder_.model().embedding.weight;
  head.to(like.dtype());
  head.to(like.device());
}

Tensor TextClassifier::probabilities(const std::vector<std::string>& texts,
                                     const SentenceOptions& options) const {
  return encoder_.map(
      texts, std::ssize(labels_), [this](const Tokens& tokens) { return softmax(forward(tokens), -1); },
      options);
}

void TextClassifier::visit(Visitor& v) {
  v("encoder", encoder_.model());
  v("head", head);
}

std::string TextClassifier::describe() const { return concat("TextClassifier(", labels_.size(), " labels)"); }

void save_text_classifier(TextClassifier& classifier, const std::string& folder) {
  save_sentence_encoder(classifier.encoder(), folder);
  save_weights(classifier.head, folder + "/classifier.safetensors");
  write_whole_file(folder + "/classifier.json", detail::Json{{"labels", classifier.labels()}}.dump(2) + "\n");
}

std::unique_ptr<TextClassifier> load_text_classifier(const std::string& folder, Device device, DType dtype) {
  std::vector<std::string> labels = read_labels(folder + "/classifier.json");
  HEED_CHECK(labels.size() >= 2 && labels.size() <= kMaxLabels, CheckpointError, "'", folder,
             "/classifier.json' has ", labels.size(), " labels; expected 2 to ", kMaxLabels);
  auto classifier =
      std::make_unique<TextClassifier>(load_sentence_encoder(folder, device, dtype), std::move(labels));
  load_weights(classifier->head, folder + "/classifier.safetensors");
  classifier->eval();
  return classifier;
}

}  // namespace heed::nn
