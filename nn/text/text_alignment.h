// Which words of a source the words of an output come from, by the model's cross-attention.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <heed/nn/text/text_model.h>

namespace heed::nn {

/// A text's tokens as words. In a text without white space each character is one, of symbols each symbol.
struct TextWords {
  std::vector<std::string> texts;
  std::vector<int64_t> word_of;  // of each token
};

TextWords words_of(const data::Tokenizer& tokenizer, std::span<const int64_t> tokens);

struct TextAlignment {
  std::vector<std::string> source, output;  // their words
  /// [output words, source words]: the cross-attention, averaged over layers and heads, without what goes to
  /// the source's marks; of an ensemble the mean of its models'. Each row adds up to 1.
  std::vector<float> weights;

  float at(int64_t output_word, int64_t source_word) const {
    return weights[static_cast<size_t>(output_word * std::ssize(source) + source_word)];
  }
  /// The source word that an output word attends to most.
  int64_t source_of(int64_t output_word) const;
};

/// How outputs[i], tokens of the model's target tokenizer as in TextOutput, attends to texts[i]; a text or an
/// output without tokens has no weights. DataError as of TextModel::run(), IndexError for tokens outside the
/// vocabulary, ShapeError unless there is an output for each text.
std::vector<TextAlignment> align(const TextModel& model, const std::vector<std::string>& texts,
                                 const std::vector<std::vector<int64_t>>& outputs);

}  // namespace heed::nn
