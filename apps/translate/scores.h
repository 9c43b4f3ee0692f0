// How far outputs are from what they should be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/text/text_pairs.h>
#include <heed/nn/text/text_model.h>

namespace heed::apps {

/// Insertions, deletions and replacements of words (what white space separates) that make one text the other.
int64_t word_edits(std::string_view a, std::string_view b);

/// A source with all targets that its pairs have, in their order.
struct Example {
  std::string source;
  std::vector<std::string> references;
};

/// The different sources of the pairs, in the order in which they come first.
std::vector<Example> group_by_source(const data::TextPairs& pairs);

/// Errors of outputs. Each is compared with the reference that it is nearest to, of equals the first.
struct TextScores {
  int64_t texts = 0;
  int64_t wrong = 0;  // outputs that no reference equals
  int64_t edits = 0;  // word_edits()
  int64_t words = 0;  // of the references

  void add(const std::string& output, const std::vector<std::string>& references);
  /// Shares: of texts that are wrong, and of edits in words, which may exceed 1. 0 without any.
  double text_error() const;
  double edit_rate() const;
};

/// A source, and what the model made of it.
struct Judged {
  Example example;
  std::string output;
};

struct TextEvaluation {
  TextScores scores;
  std::vector<Judged> failures;  // the first of them
};

/// Runs the model over all examples, whose references are taken in the normal form of its outputs.
TextEvaluation evaluate_texts(const nn::TextModel& model, const std::vector<Example>& examples,
                              const nn::TextOptions& options, size_t keep_failures = 0);

}  // namespace heed::apps
