#include "apps/embed/fine_tuning.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include <heed/core/io/sha256.h>
#include <heed/core/losses.h>
#include <heed/core/ops.h>
#include <heed/train/packed_inputs.h>

#include "apps/common/program.h"

namespace heed::apps {
namespace {

using Ids = std::vector<int64_t>;

/// Samples in memory: the tokens of a text with its label, or of two texts.
class Samples final : public data::Dataset<data::Pair> {
 public:
  explicit Samples(std::vector<data::Pair> samples) : samples_(std::move(samples)) {}

  int64_t size() const override { return std::ssize(samples_); }
  data::Pair get(int64_t, int64_t index) const override { return samples_[static_cast<size_t>(index)]; }
  std::string fingerprint() const override {
    Sha256 hash;
    for (const data::Pair& sample : samples_)
      for (const data::TokenIds& side : {sample.source, sample.target}) {
        const int64_t length = std::ssize(side);
        hash.update(&length, sizeof(length));
        hash.update(side.data(), side.size() * sizeof(int64_t));
      }
    return to_hex(hash.finish());
  }

 private:
  std::vector<data::Pair> samples_;
};

using SampleLoader = data::Loader<data::Pair, train::Batch>;
using Side = data::TokenIds data::Pair::*;

// The texts of one side, one after another.
void append_texts(StepInputs& inputs, std::span<const data::Pair> samples, Side side) {
  data::TokenIds ids;
  data::Sequences rows;
  for (const data::Pair& sample : samples) {
    const data::TokenIds& text = sample.*side;
    rows.first.push_back(rows.rows);
    rows.length.push_back(static_cast<int32_t>(text.size()));
    rows.rows += std::ssize(text);
    rows.max_length = std::max(rows.max_length, rows.length.back());
    ids.insert(ids.end(), text.begin(), text.end());
  }
  train::append_tokens(inputs, ids, rows, kCpu);
}

// Text `number` of a batch on the model's device. Its segments are made on the host, which pooling asks.
nn::Tokens text_of(const StepInputs& inputs, size_t number) {
  const Tensor* const x = &inputs.tensors[number * train::kTokenTensors];
  const Tensor first = x[2].to(kCpu), length = x[3].to(kCpu);
  const std::span<const int64_t> firsts(first.data<int64_t>(), static_cast<size_t>(first.numel()));
  const std::span<const int32_t> lengths(length.data<int32_t>(), static_cast<size_t>(length.numel()));
  return {x[0], Segments(firsts, lengths, firsts, lengths), x[1]};
}

std::string hash_of(const Tensor& x) {
  const Tensor values = x.to(kCpu).to(DType::f32).contiguous();
  return to_hex(sha256(values.data<float>(), static_cast<size_t>(values.numel()) * sizeof(float)));
}

data::TokenIds tokens_of(const nn::SentenceEncoder& encoder, const std::string& text, size_t number) {
  try {
    const Ids ids = encoder.tokenize(text);
    return {ids.begin(), ids.end()};
  } catch (const DataError& error) {
    throw DataError(concat("text ", number + 1, ": ", error.what()));
  }
}

int64_t number_of(const std::vector<std::string>& labels, const std::string& label) {
  const auto found = std::ranges::lower_bound(labels, label);
  HEED_CHECK(found != labels.end() && *found == label, DataError, "the label '", label,
             "' is none of the training's");
  return found - labels.begin();
}

void freeze(nn::Module& module, const std::vector<std::string>& patterns) {
  for (const std::string& name : patterns) module.set_requires_grad(false, name);
}

bool learns(nn::Module& module) {
  return std::ranges::any_of(module.named_parameters(),
                             [](const Parameter& p) { return p.tensor.requires_grad(); });
}

// In evaluation mode while it lives.
class Evaluating {
 public:
  explicit Evaluating(nn::Module& module) : module_(module), training_(module.training()) { module.eval(); }
  ~Evaluating() { module_.train(training_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  nn::Module& module_;
  bool training_;
};

const nn::SentenceOptions kStoppable{.on_batch = [](int64_t) { throw_if_stopped(); }};

class LabelTraining final : public FineTuning {
 public:
  LabelTraining(nn::SentenceEncoder encoder, const data::TextPairs& pairs, LabelColumn column,
                double label_smoothing, const std::vector<std::string>& frozen,
                const data::LoaderOptions& options)
      : column_(label_column(pairs, column)),
        texts_(labeled_texts(pairs, column_)),
        classifier_(std::move(encoder), texts_.kinds()),
        label_smoothing_(label_smoothing) {
    freeze(classifier_, frozen);
    HEED_CHECK(learns(classifier_), ConfigError, "--freeze leaves nothing to learn");
    head_only_ = !learns(classifier_.encoder().model());
    if (head_only_) make_vectors();
    auto samples = std::make_shared<Samples>(head_only_ ? numbered() : tokenized());
    fingerprint_ = samples->fingerprint() + (head_only_ ? hash_of(vectors_) : "");
    const auto batch = [this](std::span<const data::Pair> s, std::span<const int64_t>) { return collate(s); };
    loader_ = std::make_unique<SampleLoader>(
        std::move(samples), data::Collate<data::Pair, train::Batch>{.batch = batch}, options);
  }

  nn::Module& module() override {
    return head_only_ ? static_cast<nn::Module&>(classifier_.head) : classifier_;
  }
  train::BatchSource batches() override { return {*loader_}; }
  train::LossFunction loss() const override {
    return [this](const StepInputs& inputs) {
      const Tensor logits = head_only_ ? classifier_.head(index_select(vectors_, inputs.tensors[0]))
                                       : classifier_.forward(text_of(inputs, 0));
      return cross_entropy(logits, inputs.tensors.back(), {.label_smoothing = label_smoothing_});
    };
  }
  int64_t samples() const override { return std::ssize(texts_.texts); }
  int64_t batches_per_epoch() const override { return loader_->count_batches(0); }
  std::string fingerprint() const override { return fingerprint_; }

  double accuracy(const data::TextPairs& pairs) const override {
    const Evaluating evaluating(classifier_);
    return apps::accuracy(classifier_, labeled_texts(pairs, column_));
  }
  void save(const std::string& folder) const override { nn::save_text_classifier(classifier_, folder); }

 private:
  void make_vectors() {
    const nn::SentenceEncoder& encoder = classifier_.encoder();
    const Tensor& weight = classifier_.head.weight;
    vectors_ = encoder
                   .map(
                       texts_.texts, encoder.width(), [&](const nn::Tokens& t) { return encoder.pool(t); },
                       kStoppable)
                   .to(weight.dtype())
                   .to(weight.device());
  }

  int64_t label(size_t i) const { return number_of(classifier_.labels(), texts_.labels[i]); }
  std::vector<data::Pair> tokenized() const {
    std::vector<data::Pair> samples;
    for (size_t i = 0; i < texts_.texts.size(); ++i)
      samples.push_back({tokens_of(classifier_.encoder(), texts_.texts[i], i), {label(i)}});
    return samples;
  }
  std::vector<data::Pair> numbered() const {
    std::vector<data::Pair> samples;
    for (size_t i = 0; i < texts_.texts.size(); ++i)
      samples.push_back({{static_cast<int64_t>(i)}, {label(i)}});
    return samples;
  }

  train::Batch collate(std::span<const data::Pair> samples) const {
    train::Batch batch{{}, std::ssize(samples), std::ssize(samples)};
    data::TokenIds numbers, labels;
    for (const data::Pair& sample : samples) {
      numbers.push_back(sample.source.front());
      labels.push_back(sample.target.front());
    }
    if (head_only_)
      batch.inputs.tensors.push_back(tensor(numbers, {batch.samples}));
    else
      append_texts(batch.inputs, samples, &data::Pair::source);
    batch.inputs.tensors.push_back(tensor(labels, {batch.samples}));
    return batch;
  }

  LabelColumn column_;
  LabeledTexts texts_;
  mutable nn::TextClassifier classifier_;
  double label_smoothing_;
  bool head_only_ = false;
  Tensor vectors_;  // of all texts, where only the head learns
  std::string fingerprint_;
  std::unique_ptr<SampleLoader> loader_;
};

// The names of parameters begin with encoder., as those of a classifier do.
class EncoderPart final : public nn::Module {
 public:
  explicit EncoderPart(nn::TextEncoder& model) : model_(model) {}
  void visit(nn::Visitor& v) override { v("encoder", model_); }

 private:
  nn::TextEncoder& model_;
};

class PairTraining final : public FineTuning {
 public:
  PairTraining(nn::SentenceEncoder encoder, const data::TextPairs& pairs, double scale,
               const std::vector<std::string>& frozen, const data::LoaderOptions& options)
      : encoder_(std::move(encoder)), module_(encoder_.model()), scale_(scale) {
    freeze(module_, frozen);
    HEED_CHECK(learns(module_), ConfigError, "--freeze leaves nothing to learn");
    HEED_CHECK(options.batch_size >= 2, ConfigError,
               "--batch-size 1 has no other answers to tell a text's own from");
    std::vector<data::Pair> tokens;
    for (size_t i = 0; i < pairs.sources.size(); ++i)
      tokens.push_back({tokens_of(encoder_, pairs.sources[i], i), tokens_of(encoder_, pairs.targets[i], i)});
    samples_ = std::make_shared<Samples>(std::move(tokens));
    const auto batch = [](std::span<const data::Pair> s, std::span<const int64_t>) {
      train::Batch made{{}, std::ssize(s), std::ssize(s)};
      append_texts(made.inputs, s, &data::Pair::source);
      append_texts(made.inputs, s, &data::Pair::target);
      return made;
    };
    loader_ = std::make_unique<SampleLoader>(
        samples_, data::Collate<data::Pair, train::Batch>{.batch = batch}, options);
  }

  nn::Module& module() override { return module_; }
  train::BatchSource batches() override { return {*loader_}; }
  train::LossFunction loss() const override {
    return [this](const StepInputs& inputs) {
      return nn::ranking_loss(encoder_.embed(text_of(inputs, 0)), encoder_.embed(text_of(inputs, 1)), scale_);
    };
  }
  int64_t samples() const override { return samples_->size(); }
  int64_t batches_per_epoch() const override { return loader_->count_batches(0); }
  std::string fingerprint() const override { return samples_->fingerprint(); }

  double accuracy(const data::TextPairs& pairs) const override {
    const Evaluating evaluating(encoder_.model());
    const Tensor questions = encoder_.encode(pairs.sources, kStoppable),
                 answers = encoder_.encode(pairs.targets, kStoppable).transpose(0, 1);
    constexpr int64_t kTogether = 256;
    int64_t right = 0;
    for (int64_t first = 0; first < pairs.size(); first += kTogether) {
      const int64_t count = std::min(kTogether, pairs.size() - first);
      const Tensor found = argmax(matmul(questions.slice(0, first, first + count), answers), 1);
      for (int64_t i = 0; i < count; ++i) {
        const auto best = static_cast<size_t>(found.data<int64_t>()[i]);
        right += pairs.targets[best] == pairs.targets[static_cast<size_t>(first + i)];
      }
    }
    return static_cast<double>(right) / static_cast<double>(pairs.size());
  }
  void save(const std::string& folder) const override { nn::save_sentence_encoder(encoder_, folder); }

 private:
  nn::SentenceEncoder encoder_;
  EncoderPart module_;
  double scale_;
  std::shared_ptr<Samples> samples_;
  std::unique_ptr<SampleLoader> loader_;
};

}  // namespace

std::vector<std::string> LabeledTexts::kinds() const {
  const std::set<std::string> different(labels.begin(), labels.end());
  return {different.begin(), different.end()};
}

LabelColumn label_column(const data::TextPairs& pairs, LabelColumn column) {
  if (column != LabelColumn::detect) return column;
  const auto different = [](const std::vector<std::string>& side) {
    return std::set<std::string>(side.begin(), side.end()).size();
  };
  return different(pairs.sources) <= different(pairs.targets) ? LabelColumn::first : LabelColumn::second;
}

LabeledTexts labeled_texts(const data::TextPairs& pairs, LabelColumn column) {
  if (label_column(pairs, column) == LabelColumn::first) return {pairs.targets, pairs.sources};
  return {pairs.sources, pairs.targets};
}

double accuracy(const nn::TextClassifier& classifier, const LabeledTexts& texts) {
  const Tensor found = argmax(classifier.probabilities(texts.texts, kStoppable), 1);
  int64_t right = 0;
  for (size_t i = 0; i < texts.texts.size(); ++i)
    right += found.data<int64_t>()[i] == number_of(classifier.labels(), texts.labels[i]);
  return static_cast<double>(right) / static_cast<double>(texts.texts.size());
}

std::unique_ptr<FineTuning> fine_tune_labels(nn::SentenceEncoder encoder, const data::TextPairs& pairs,
                                             LabelColumn column, double label_smoothing,
                                             const std::vector<std::string>& frozen,
                                             const data::LoaderOptions& options) {
  return std::make_unique<LabelTraining>(std::move(encoder), pairs, column, label_smoothing, frozen, options);
}

std::unique_ptr<FineTuning> fine_tune_pairs(nn::SentenceEncoder encoder, const data::TextPairs& pairs,
                                            double scale, const std::vector<std::string>& frozen,
                                            const data::LoaderOptions& options) {
  return std::make_unique<PairTraining>(std::move(encoder), pairs, scale, frozen, options);
}

}  // namespace heed::apps
