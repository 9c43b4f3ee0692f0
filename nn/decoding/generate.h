// Texts by a decoder-only model: what follows prompts, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <heed/core/sampling.h>
#include <heed/nn/models/language_model.h>

namespace heed::nn {

struct GenerateOptions {
  int64_t max_tokens = 64;  // made for each prompt
  /// temperature 0: the most probable token each time.
  SampleOptions sample = {};
  /// Logits of tokens that the text has already, its prompt included, are divided by it where they are
  /// positive and multiplied where not (Keskar et al., arXiv 1909.05858). 1: none.
  double repetition_penalty = 1;
  std::vector<int64_t> ends = {};  // tokens that end a text, and are not part of it
  /// Told each new token and the prompt's number as it comes; false ends that prompt's text. What it throws
  /// ends the work.
  std::function<bool(int64_t prompt, int64_t token)> on_token = {};
  /// Of one sequence, for one prompt: what it holds comes before the prompt, and afterwards it holds all of
  /// the text but its last tokens (length() tells how many it has), so that the text can go on. Null: one of
  /// its own.
  KeyValueCache* cache = nullptr;
};

/// What follows each prompt, token by token, with a cache. Prompts may differ in length; none is empty.
/// Dropout is off and nothing is recorded. ConfigError, IndexError for a token that the vocabulary lacks,
/// ShapeError where learned positions run out, NumericError where the model answers with NaN.
std::vector<std::vector<int64_t>> generate(LanguageModel& model,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& options = {});

}  // namespace heed::nn
