// What metrics count: characters, words, and runs of them. Not installed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed::data::detail {

/// Code points; a byte that is not part of UTF-8 becomes U+FFFD.
std::u32string code_points(std::string_view text);

/// What Python's str.split takes for white space.
bool is_space(char32_t code_point);

/// Code points without white space.
std::u32string characters(std::string_view text);

/// What white space separates.
std::vector<std::string_view> words(std::string_view text);

std::string_view without_trailing_space(std::string_view text);

/// Small letters, as Python's str.lower has them: sigma is ς at the end of a word.
std::string lower(std::string_view text);

/// Words as symbols, equal where the words are. The words must outlive it.
class WordSymbols {
 public:
  std::u32string operator()(const std::vector<std::string_view>& words);

 private:
  std::unordered_map<std::string_view, char32_t> symbols_;
};

/// How often each run of symbols occurs. The keys are views of the sequence.
using NgramCounts = std::unordered_map<std::u32string_view, int64_t>;
NgramCounts count_ngrams(std::u32string_view sequence, size_t order);

/// Runs that both have, each as often as both have it.
int64_t count_matches(const NgramCounts& a, const NgramCounts& b);

}  // namespace heed::data::detail
