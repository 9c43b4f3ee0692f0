#include "apps/translate/scores.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <heed/data/text/unicode.h>

namespace heed::apps {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0, end = 0;
  const auto cut = [&](size_t next) {
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = next;
  };
  data::for_each_code_point(text, [&](int32_t code_point, std::string_view bytes) {
    if (data::character_class(code_point) == data::CharacterClass::space) cut(end + bytes.size());
    end += bytes.size();
  });
  cut(end);
  return words;
}

// Levenshtein's distance, one row of its table at a time.
int64_t edits_between(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), int64_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

int64_t word_edits(std::string_view a, std::string_view b) { return edits_between(words_of(a), words_of(b)); }

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

void TextScores::add(const std::string& output, const std::vector<std::string>& references) {
  const std::vector<std::string_view> found = words_of(output);
  int64_t least = INT64_MAX, length = 0;
  for (const std::string& reference : references) {
    const std::vector<std::string_view> wanted = words_of(reference);
    const int64_t distance = edits_between(found, wanted);
    if (distance >= least) continue;
    least = distance;
    length = std::ssize(wanted);
  }
  if (references.empty()) return;
  ++texts;
  wrong += std::find(references.begin(), references.end(), output) == references.end();
  edits += least;
  words += length;
}

double TextScores::text_error() const { return share(wrong, texts); }
double TextScores::edit_rate() const { return share(edits, words); }

TextEvaluation evaluate_texts(const nn::TextModel& model, const std::vector<Example>& examples,
                              const nn::TextOptions& options, size_t keep_failures) {
  std::vector<std::string> sources;
  for (const Example& example : examples) sources.push_back(example.source);
  const auto outputs = model.run(sources, options);
  const data::TokenizerOptions& form = model.target().options();
  TextEvaluation result;
  for (size_t i = 0; i < examples.size(); ++i) {
    const std::string& output = outputs[i].front().text;
    const int64_t wrong = result.scores.wrong;
    std::vector<std::string> references;
    for (const std::string& reference : examples[i].references)
      references.push_back(data::normalize(reference, form.normalization, form.lowercase));
    result.scores.add(output, references);
    if (result.scores.wrong > wrong && result.failures.size() < keep_failures)
      result.failures.push_back({examples[i], output});
  }
  return result;
}

}  // namespace heed::apps
