#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <heed/data/text/metrics/bleu.h>
#include <heed/data/text/metrics/detail/units.h>

#include "../detail/replace_all.h"

namespace heed::data {
namespace {

// Statistics: both lengths, then matches and n-grams by order.
constexpr size_t kLength = 0, kReferenceLength = 1, kMatches = 2, kNgrams = kMatches + Bleu::kOrders,
                 kStatistics = kNgrams + Bleu::kOrders;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }
// ASCII's marks without those that stand within words and numbers: ' , - .
bool is_mark(char c) {
  return (c > ' ' && c < '0' && c != '\'' && c != ',' && c != '-' && c != '.') || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Puts spaces before, between and after each two neighbours that fit; a character is part of one pair at
// most.
template <class First, class Second>
std::string part_pairs(const std::string& text, First first, Second second, bool before, bool after) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !first(text[i]) || !second(text[i + 1])) {
      result += text[i];
      continue;
    }
    if (before) result += ' ';
    result += text[i++];
    result += ' ';
    result += text[i];
    if (after) result += ' ';
  }
  return result;
}

int64_t closest_length(int64_t length, const std::vector<int64_t>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(), [length](int64_t a, int64_t b) {
    const int64_t from_a = std::abs(a - length), from_b = std::abs(b - length);
    return from_a != from_b ? from_a < from_b : a < b;
  });
}

}  // namespace

// The rules are mteval's, in its order. Bytes do for characters, as no rule names one outside of ASCII.
std::string tokenize_13a(std::string_view input) {
  std::string text(detail::without_trailing_space(input));
  using detail::replace_all;
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  std::string parted = " ";
  for (const char c : text) {
    if (is_mark(c)) parted += ' ';
    parted += c;
    if (is_mark(c)) parted += ' ';
  }
  parted += ' ';
  const auto is_other = [](char c) { return !is_digit(c); };
  parted = part_pairs(parted, is_other, is_stop, false, true);
  parted = part_pairs(parted, is_stop, is_other, true, false);
  parted = part_pairs(
      parted, is_digit, [](char c) { return c == '-'; }, false, true);
  std::string tokens;
  for (const std::string_view word : detail::words(parted)) {
    if (!tokens.empty()) tokens += ' ';
    tokens += word;
  }
  return tokens;
}

Statistics Bleu::count(std::string_view hypothesis, const References& references) const {
  std::vector<std::string> texts;  // which symbols refer to
  texts.reserve(references.size() + 1);
  detail::WordSymbols symbols;
  const auto tokens = [&](std::string_view text) {
    if (options_.tokenizer == BleuTokenizer::characters) return detail::characters(text);
    return symbols(detail::words(texts.emplace_back(tokenize_13a(text))));
  };
  const std::u32string mine = tokens(hypothesis);
  std::vector<std::u32string> theirs;
  std::vector<int64_t> lengths;
  for (const std::string& reference : references) {
    theirs.push_back(tokens(reference));
    lengths.push_back(static_cast<int64_t>(theirs.back().size()));
  }
  Statistics result(kStatistics);
  result[kLength] = static_cast<double>(mine.size());
  result[kReferenceLength] = static_cast<double>(closest_length(static_cast<int64_t>(mine.size()), lengths));
  for (size_t order = 1; order <= kOrders; ++order) {
    detail::NgramCounts most;  // of each n-gram in any reference
    for (const std::u32string& reference : theirs)
      for (const auto& [ngram, count] : detail::count_ngrams(reference, order))
        most[ngram] = std::max(most[ngram], count);
    result[kMatches + order - 1] =
        static_cast<double>(detail::count_matches(detail::count_ngrams(mine, order), most));
    result[kNgrams + order - 1] = mine.size() < order ? 0 : static_cast<double>(mine.size() - order + 1);
  }
  return result;
}

Bleu::Parts Bleu::parts(const Statistics& sum) const {
  const double length = sum[kLength], reference_length = sum[kReferenceLength];
  Parts result{.score = 0,
               .precision = {},
               .brevity_penalty = 1,
               .length = static_cast<int64_t>(length),
               .reference_length = static_cast<int64_t>(reference_length)};
  if (length < reference_length)
    result.brevity_penalty = length > 0 ? std::exp(1 - reference_length / length) : 0;
  const auto* const matches = &sum[kMatches];
  if (std::all_of(matches, matches + kOrders, [](double count) { return count == 0; })) return result;
  double smoothing = 1, logarithms = 0;
  size_t order = 0;
  for (; order < kOrders && sum[kNgrams + order] > 0; ++order) {
    if (matches[order] == 0) smoothing *= 2;
    result.precision[order] =
        100 * (matches[order] == 0 ? 1 / smoothing : matches[order]) / sum[kNgrams + order];
    logarithms += std::log(result.precision[order]);
  }
  if (order == kOrders || options_.effective_order)
    result.score = result.brevity_penalty * std::exp(logarithms / static_cast<double>(order));
  return result;
}

}  // namespace heed::data
