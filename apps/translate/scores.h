// How far outputs are from what they should be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <heed/data/text/metrics/bootstrap.h>
#include <heed/data/text/text_pairs.h>
#include <heed/nn/text/text_model.h>

namespace heed::apps {

/// A source with all targets that its pairs have, in their order.
struct Example {
  std::string source;
  data::References references;
};

/// The different sources of the pairs, in the order in which they come first.
std::vector<Example> group_by_source(const data::TextPairs& pairs);

/// How far outputs are from their references (data/text/metrics). Of pronunciations edit_rate is the phoneme
/// error and text_error the word error.
struct TextScores {
  int64_t texts = 0;
  /// Words (what white space separates) to add, remove or replace, to those there should be.
  double edit_rate = 0;
  double text_error = 0;      // the share of texts that have the words of no reference
  double bleu = 0, chrf = 0;  // percent
};

/// All 0 without texts. DataError for one without references.
TextScores score_texts(const std::vector<std::string>& outputs,
                       const std::vector<data::References>& references);

/// Between which the numbers of TextScores lie, 95 of 100 times, as the texts are drawn anew (1,000 times).
struct TextIntervals {
  data::Interval edit_rate, text_error, bleu, chrf;  // the first two as shares
};

/// DataError without texts.
TextIntervals intervals_of(const std::vector<std::string>& outputs,
                           const std::vector<data::References>& references);

/// A source, and what the model made of it.
struct Judged {
  Example example;
  std::string output;
};

struct TextEvaluation {
  TextScores scores;
  std::vector<Judged> failures;  // the first of them
  std::vector<std::string> outputs;
  std::vector<data::References> references;  // of each
};

/// Runs the model over all examples, whose references are taken in the normal form of its outputs.
TextEvaluation evaluate_texts(const nn::TextModel& model, const std::vector<Example>& examples,
                              const nn::TextOptions& options, size_t keep_failures = 0);

}  // namespace heed::apps
