// Texts by a decoder-only model: what follows prompts, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <heed/core/sampling.h>
#include <heed/nn/language_model.h>

namespace heed::nn {

struct GenerateOptions {
  int64_t max_tokens = 64;  // made for each prompt
  /// temperature 0: the most probable token each time.
  SampleOptions sample = {};
  int64_t end = -1;  // a token that ends a text, and is not part of it; -1: none
  /// Told each new token and the prompt's number as it comes. What it throws ends the search.
  std::function<void(int64_t prompt, int64_t token)> on_token = {};
};

/// What follows each prompt, token by token, with a cache. Prompts may differ in length; none is empty.
/// Dropout is off and nothing is recorded. ConfigError, IndexError for a token that the vocabulary lacks,
/// ShapeError where learned positions run out, NumericError where the model answers with NaN.
std::vector<std::vector<int64_t>> generate(LanguageModel& model,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& options = {});

}  // namespace heed::nn
