#include <algorithm>
#include <cmath>
#include <memory>

#include <heed/core/ops.h>
#include <heed/nn/detail/evaluation.h>
#include <heed/train/language_model.h>
#include <heed/train/packed_inputs.h>

namespace heed::train {
namespace {

constexpr int64_t kIgnored = -100;  // for the rows that pad a batch on a device
constexpr size_t kLabels = kTokenTensors;

Batch pack(std::span<const data::TokenIds> samples, Device device) {
  data::TokenIds ids, labels;
  data::Sequences sequences;
  for (const data::TokenIds& sample : samples) {
    const auto length = static_cast<int32_t>(std::ssize(sample) - 1);
    sequences.first.push_back(sequences.rows);
    sequences.length.push_back(length);
    sequences.rows += length;
    sequences.max_length = std::max(sequences.max_length, length);
    ids.insert(ids.end(), sample.begin(), sample.end() - 1);
    labels.insert(labels.end(), sample.begin() + 1, sample.end());
  }
  Batch batch{{}, std::ssize(samples), sequences.rows};
  append_tokens(batch.inputs, ids, sequences, device);
  append_labels(batch.inputs, labels, kIgnored);
  return batch;
}

}  // namespace

data::Collate<data::TokenIds, Batch> language_model_collate(Device device, int64_t longest) {
  return {.batch = [device](std::span<const data::TokenIds> samples,
                            std::span<const int64_t>) { return pack(samples, device); },
          .size =
              [](const data::TokenIds& sample) {
                return data::SampleSize{std::ssize(sample) - 1, {std::ssize(sample), 0}};
              },
          .most_rows = longest};
}

LossFunction language_model_loss(const nn::LanguageModel& model, double label_smoothing) {
  return [&model, label_smoothing](const StepInputs& inputs) {
    return model.loss(tokens_of(inputs, 0, 0), inputs.tensors[kLabels],
                      {.ignore = kIgnored, .label_smoothing = label_smoothing});
  };
}

double Prediction::perplexity() const { return std::exp(mean()); }

double Prediction::bits_per_character(int64_t characters) const {
  return loss / std::log(2.0) / static_cast<double>(std::max<int64_t>(characters, 1));
}

Prediction predict(nn::LanguageModel& model, const data::Dataset<data::TokenIds>& dataset, int64_t rows,
                   const std::function<void()>& before_batch) {
  const nn::Evaluation evaluation(model);
  const Device device = model.embedding.weight.device();
  const LossFunction loss = language_model_loss(model);
  Prediction result;
  std::vector<data::TokenIds> samples;
  int64_t used = 0;
  const auto flush = [&] {
    if (samples.empty()) return;
    if (before_batch) before_batch();
    Batch batch = pack(samples, device);
    for (Tensor& tensor : batch.inputs.tensors) tensor = tensor.to(device);
    result.loss += loss(batch.inputs).item<double>() * static_cast<double>(batch.tokens);
    result.tokens += batch.tokens;
    samples.clear();
    used = 0;
  };
  for (int64_t i = 0; i < dataset.size(); ++i) {
    data::TokenIds sample = dataset.get(0, i);
    const int64_t length = std::ssize(sample) - 1;
    HEED_CHECK(length <= rows, ConfigError, "a sample of ", length, " tokens in batches of ", rows);
    if (used + length > rows) flush();
    samples.push_back(std::move(sample));
    used += length;
  }
  flush();
  return result;
}

}  // namespace heed::train
