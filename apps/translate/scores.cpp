#include "apps/translate/scores.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include <heed/data/text/metrics/bleu.h>
#include <heed/data/text/metrics/chrf.h>
#include <heed/data/text/metrics/error_rate.h>
#include <heed/data/text/unicode.h>

namespace heed::apps {

std::vector<Example> group_by_source(const data::TextPairs& pairs) {
  std::vector<Example> examples;
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    const auto [place, is_new] = places.emplace(pairs.sources[i], examples.size());
    if (is_new) examples.push_back({pairs.sources[i], {}});
    examples[place->second].references.push_back(pairs.targets[i]);
  }
  return examples;
}

TextScores score_texts(const std::vector<std::string>& outputs,
                       const std::vector<data::References>& references) {
  if (outputs.empty()) return {};
  return {.texts = std::ssize(outputs),
          .edit_rate = data::ErrorRate().corpus_score(outputs, references) / 100,
          .text_error = 1 - data::ExactMatch().corpus_score(outputs, references) / 100,
          .bleu = data::Bleu().corpus_score(outputs, references),
          .chrf = data::Chrf().corpus_score(outputs, references)};
}

TextIntervals intervals_of(const std::vector<std::string>& outputs,
                           const std::vector<data::References>& references) {
  const auto interval = [&](const data::TextMetric& metric) {
    return data::bootstrap(metric, metric.statistics(outputs, references));
  };
  const data::Interval edits = interval(data::ErrorRate()), right = interval(data::ExactMatch());
  return {
      .edit_rate = {edits.score / 100, edits.mean / 100, edits.low / 100, edits.high / 100},
      .text_error = {1 - right.score / 100, 1 - right.mean / 100, 1 - right.high / 100, 1 - right.low / 100},
      .bleu = interval(data::Bleu()),
      .chrf = interval(data::Chrf())};
}

TextEvaluation evaluate_texts(const nn::TextModel& model, const std::vector<Example>& examples,
                              const nn::TextOptions& options, size_t keep_failures) {
  const data::TokenizerOptions& form = model.target().options();
  std::vector<std::string> sources, outputs;
  std::vector<data::References> references;
  for (const Example& example : examples) {
    sources.push_back(example.source);
    data::References& known = references.emplace_back();
    for (const std::string& reference : example.references)
      known.push_back(data::normalize(reference, form.normalization, form.lowercase));
  }
  for (auto& found : model.run(sources, options)) outputs.push_back(std::move(found.front().text));
  TextEvaluation result{score_texts(outputs, references), {}, {}, {}};
  const data::ExactMatch match;
  for (size_t i = 0; i < examples.size() && result.failures.size() < keep_failures; ++i)
    if (match.sentence_score(outputs[i], references[i]) == 0)
      result.failures.push_back({examples[i], outputs[i]});
  result.outputs = std::move(outputs);
  result.references = std::move(references);
  return result;
}

}  // namespace heed::apps
