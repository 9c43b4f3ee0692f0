#include "apps/common/seq2seq.h"

#include <algorithm>
#include <cmath>

#include <heed/core/ops.h>

#include "apps/common/program.h"

namespace heed::apps {
namespace {

class EvaluationMode {
 public:
  explicit EvaluationMode(nn::Module& module) : module_(module), was_training_(module.training()) {
    module.eval();
  }
  ~EvaluationMode() { module_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  NoGrad no_grad_;
  nn::Module& module_;
  bool was_training_;
};

int64_t count_equal(const Tensor& a, const Tensor& b) {
  const std::vector<int64_t> x = a.to_vector<int64_t>(), y = b.to_vector<int64_t>();
  int64_t count = 0;
  for (size_t i = 0; i < x.size(); ++i) count += x[i] == y[i] && y[i] != data::kPad;
  return count;
}

}  // namespace

Evaluation evaluate(nn::Seq2SeqModel& model, const data::PairDataset& dataset,
                    const EvaluationOptions& options) {
  const EvaluationMode mode(model);
  const Device device = model.parameters().device();
  Evaluation result;
  int64_t tokens = 0, right_tokens = 0, right_sequences = 0;
  const int64_t longest =
      options.max_decode_length > 0 ? options.max_decode_length : dataset.longest_target() + 2;
  const nn::DecodeOptions decode{.max_length = std::min(longest, model.max_target()),
                                 .on_step = throw_if_stopped};
  const int64_t count = std::min(options.max_pairs, dataset.size());
  std::vector<data::Pair> pairs;
  std::vector<int64_t> numbers;
  for (int64_t first = 0; first < count; first += options.batch_size) {
    throw_if_stopped();
    pairs.clear();
    numbers.clear();
    for (int64_t i = first; i < std::min(first + options.batch_size, count); ++i) {
      pairs.push_back(dataset.get(0, i));
      numbers.push_back(i);
    }
    const data::PairBatch packed = data::pack(pairs, numbers, options.marks);
    const train::Seq2SeqBatch batch = train::to_tensors(packed, device);
    const Tensor logits = model.forward(batch.source, batch.target);
    const double loss =
        cross_entropy(logits, batch.labels, {.ignore = data::kPad, .reduction = Reduction::sum})
            .item<double>();
    HEED_CHECK(std::isfinite(loss), NumericError, "evaluation: the loss of pairs ", first + 1, " to ",
               first + std::ssize(pairs), " is ", loss);
    result.loss += loss;
    tokens += packed.target_tokens();
    right_tokens += count_equal(argmax(logits, -1), batch.labels);
    if (options.decode)
      for (Prediction& p :
           grade(nn::greedy_search(model, batch.source, search_for(pairs, options.marks, decode)), pairs,
                 options.marks)) {
        right_sequences += p.right;
        if (!p.right && std::ssize(result.failures) < options.keep_failures)
          result.failures.push_back(std::move(p));
      }
    if (options.on_batch) options.on_batch(std::ssize(pairs));
  }
  result.pairs = count;
  result.loss /= static_cast<double>(std::max<int64_t>(tokens, 1));
  result.token_accuracy =
      static_cast<double>(right_tokens) / static_cast<double>(std::max<int64_t>(tokens, 1));
  result.sequence_accuracy =
      static_cast<double>(right_sequences) / static_cast<double>(std::max<int64_t>(result.pairs, 1));
  return result;
}

nn::DecodeOptions search_for(std::span<const data::Pair> pairs, data::Marks marks,
                             nn::DecodeOptions options) {
  if (marks.end) return options;
  options.end = -1;
  options.max_lengths.clear();
  for (const data::Pair& pair : pairs) options.max_lengths.push_back(std::ssize(pair.target));
  return options;
}

std::vector<Prediction> grade(const std::vector<nn::Hypothesis>& outputs, std::span<const data::Pair> pairs,
                              data::Marks marks) {
  std::vector<Prediction> result;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Prediction p{pairs[i], outputs[i]};
    p.right = (p.output.finished || !marks.end) && std::ranges::equal(p.output.tokens, p.pair.target);
    result.push_back(std::move(p));
  }
  return result;
}

std::vector<Prediction> predict(nn::Seq2SeqModel& model, const std::vector<data::Pair>& pairs,
                                data::Marks marks, const nn::DecodeOptions& options) {
  std::vector<int64_t> numbers(pairs.size());
  const data::PairBatch batch = data::pack(pairs, numbers, marks);
  const NoGrad no_grad;
  const nn::Tokens source = train::to_tensors(batch, model.parameters().device()).source;
  return grade(nn::greedy_search(model, source, search_for(pairs, marks, options)), pairs, marks);
}

}  // namespace heed::apps
