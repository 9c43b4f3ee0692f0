// How texts are cut before sub-words are looked for: the regular expressions of published models, matched by
// hand in linear time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed::data::detail {

/// A family of expressions. GPT-2's is
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// and that of Llama-3
///   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
///   \s+(?!\S)|\s+
struct SplitPattern {
  bool modern = false;  // as Llama-3's: contractions in any case, a mark before letters, ends of lines apart
  size_t max_digits = 0;  // in a row; 0: any number, and a space may come before them
};
inline constexpr SplitPattern kGpt2Pattern{};

/// The pattern that an expression is, if it is known.
std::optional<SplitPattern> find_pattern(std::string_view expression);
/// What find_pattern() finds for messages.
extern const char* const kKnownPatterns;

/// Bytes of the first piece of a text, which is not empty and well-formed.
size_t first_piece(std::string_view text, SplitPattern pattern);

/// One step of a pre-tokenizer.
struct Splitter {
  enum class Kind {
    pattern,         // each match
    digit,           // each digit (\p{N}) apart
    digits,          // each run of digits apart
    bert,            // white space is dropped, punctuation apart
    space_in_front,  // nothing cut: a space before a piece that begins with none
  };
  Kind kind;
  SplitPattern pattern = {};
};

/// Cuts a piece, which is not empty.
void split(const Splitter& splitter, std::string_view piece, std::vector<std::string_view>& pieces);

}  // namespace heed::data::detail
