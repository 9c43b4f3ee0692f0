#include <algorithm>
#include <optional>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/decoding/generate.h>
#include <heed/nn/detail/evaluation.h>

namespace heed::nn {
namespace {

class Generation {
 public:
  Generation(const LanguageModel& model, size_t prompts, const GenerateOptions& options)
      : model_(model),
        options_(options),
        device_(model.embedding.weight.device()),
        own_(options.cache ? std::nullopt : std::optional(model.make_cache(static_cast<int64_t>(prompts)))),
        cache_(options.cache ? *options.cache : *own_),
        results_(prompts),
        seen_(prompts) {
    for (size_t i = 0; i < prompts; ++i) going_on_.push_back(static_cast<int64_t>(i));
  }

  std::vector<std::vector<int64_t>> run(const std::vector<std::vector<int64_t>>& prompts) {
    Tokens tokens = Tokens::packed(prompts, device_);
    if (options_.repetition_penalty != 1)
      for (size_t i = 0; i < prompts.size(); ++i) seen_[i] = prompts[i];
    std::vector<int64_t> last;  // row of each prompt
    for (int64_t i = 0; i < tokens.segments.count(); ++i)
      last.push_back(tokens.segments.query_first(i) + tokens.segments.query_length(i) - 1);
    Tensor states = model_.states(tokens, &cache_);
    states = index_select(states, tensor(last, {static_cast<int64_t>(last.size())}, device_));
    for (int64_t made = 1; take(states) && made < options_.max_tokens; ++made) {
      const auto rows = static_cast<int64_t>(newest_.size());
      states = model_.states({tensor(newest_, {rows}, device_), Segments::dense(rows, 1), /*positions=*/{}},
                             &cache_);
    }
    return std::move(results_);
  }

 private:
  // Takes a token for each text that goes on. Returns whether any still does.
  bool take(const Tensor& states) {
    const Tensor logits = penalized(model_.logits(states).to(DType::f32));
    HEED_CHECK(!any(is_nan(logits)).item<bool>(), NumericError,
               "generate: the logits are NaN; is a weight of the model?");
    const Tensor chosen =
        options_.sample.temperature == 0 ? argmax(logits, -1) : sample(logits, options_.sample);
    const std::vector<int64_t> tokens = chosen.to_vector<int64_t>();
    std::vector<int64_t> kept, prompts;
    newest_.clear();
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (std::find(options_.ends.begin(), options_.ends.end(), tokens[i]) != options_.ends.end()) continue;
      const int64_t prompt = going_on_[i];
      results_[static_cast<size_t>(prompt)].push_back(tokens[i]);
      if (options_.repetition_penalty != 1) seen_[static_cast<size_t>(prompt)].push_back(tokens[i]);
      if (options_.on_token && !options_.on_token(prompt, tokens[i])) continue;
      kept.push_back(static_cast<int64_t>(i));
      prompts.push_back(prompt);
      newest_.push_back(tokens[i]);
    }
    going_on_ = std::move(prompts);
    if (!going_on_.empty()) cache_.select(kept);
    return !going_on_.empty();
  }

  // Of the prompts that go on, against what they have already.
  Tensor penalized(const Tensor& logits) const {
    if (options_.repetition_penalty == 1) return logits;
    size_t longest = 0;
    for (const int64_t prompt : going_on_)
      longest = std::max(longest, seen_[static_cast<size_t>(prompt)].size());
    std::vector<int64_t> ids;
    for (const int64_t prompt : going_on_) {
      const std::vector<int64_t>& seen = seen_[static_cast<size_t>(prompt)];
      ids.insert(ids.end(), seen.begin(), seen.end());
      ids.resize(ids.size() + longest - seen.size(), seen.front());  // the same again changes nothing
    }
    const Tensor index = tensor(ids, {std::ssize(going_on_), static_cast<int64_t>(longest)}, device_);
    const Tensor x = gather(logits, -1, index), penalty = full({}, options_.repetition_penalty, x.options());
    return scatter(logits, -1, index, where(greater(x, 0), x / penalty, x * penalty));
  }

  const LanguageModel& model_;
  const GenerateOptions& options_;
  Device device_;
  std::optional<KeyValueCache> own_;
  KeyValueCache& cache_;
  std::vector<int64_t> going_on_;  // the prompt of each sequence of the cache
  std::vector<int64_t> newest_;    // their newest tokens
  std::vector<std::vector<int64_t>> results_;
  std::vector<std::vector<int64_t>> seen_;  // tokens of each prompt and its text, where they count
};

}  // namespace

std::vector<std::vector<int64_t>> generate(LanguageModel& model,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& options) {
  HEED_CHECK(options.max_tokens > 0, ConfigError, "generate: max_tokens must be positive, got ",
             options.max_tokens);
  HEED_CHECK(std::none_of(prompts.begin(), prompts.end(), [](const auto& prompt) { return prompt.empty(); }),
             ConfigError, "generate: a prompt is empty; begin it with a token that starts texts");
  HEED_CHECK(options.repetition_penalty > 0, ConfigError,
             "generate: repetition_penalty must be positive, got ", options.repetition_penalty);
  HEED_CHECK(!options.cache || (prompts.size() == 1 && options.cache->sequences() == 1), ConfigError,
             "generate: a cache of one's own is for one prompt and one sequence");
  if (prompts.empty()) return {};
  const Evaluation evaluation(model);
  std::optional<NoPackedCopies> alone;
  if (prompts.size() == 1) alone.emplace();
  return Generation(model, prompts.size(), options).run(prompts);
}

}  // namespace heed::nn
