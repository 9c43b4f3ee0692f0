#include "../detail/splitting.h"

#include <utf8proc.h>

#include <heed/data/text/unicode.h>

#include "../detail/bert_text.h"
#include "../detail/code_points.h"

namespace heed::data::detail {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kModernHead = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
constexpr std::string_view kModernTail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool is_newline(char c) { return c == '\r' || c == '\n'; }

/// Bytes of the longest run of a class from `at` on, at most `most` characters.
size_t run(std::string_view text, size_t at, CharacterGroup group, size_t most = std::string_view::npos) {
  const size_t begin = at;
  for (size_t count = 0; at < text.size() && count < most; ++count) {
    const CodePoint c = code_point_at(text, at);
    if (group_of(c.value) != group) break;
    at += c.bytes;
  }
  return at - begin;
}

/// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at the front of a text, else 0.
size_t contraction(std::string_view text, bool any_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto letter = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:  // the long s is a small s in any case
      return any_case && text.substr(1).starts_with("\u017f") ? 3 : 0;
  }
}

/// \s*[\r\n]+ in Llama-3's, then \s+(?!\S)|\s+: `length` is that of all white space here.
size_t white_space(std::string_view text, size_t length, bool newlines_apart) {
  if (newlines_apart)
    for (size_t end = length; end > 0; --end)
      if (is_newline(text[end - 1])) return end;
  if (length == text.size()) return length;
  size_t last = length - 1;  // where the last character begins, which is left to the next piece
  while ((text[last] & 0xc0) == 0x80) --last;
  return last > 0 ? last : length;
}

void split_runs(std::string_view piece, bool apart, std::vector<std::string_view>& pieces) {
  size_t begin = 0, at = 0;
  bool numbers = false;  // the run so far
  while (at < piece.size()) {
    const CodePoint c = code_point_at(piece, at);
    const bool number = group_of(c.value) == CharacterGroup::number;
    if (at > begin && (number != numbers || (number && apart))) {
      pieces.push_back(piece.substr(begin, at - begin));
      begin = at;
    }
    numbers = number;
    at += c.bytes;
  }
  pieces.push_back(piece.substr(begin));
}

void split_bert(std::string_view piece, std::vector<std::string_view>& pieces) {
  size_t begin = 0, at = 0;
  while (at < piece.size()) {
    const CodePoint c = code_point_at(piece, at);
    const bool space = group_of(c.value) == CharacterGroup::space;
    const bool cut = space || is_bert_punctuation(c.value);
    if (cut && at > begin) pieces.push_back(piece.substr(begin, at - begin));
    if (cut && !space) pieces.push_back(piece.substr(at, c.bytes));
    at += c.bytes;
    if (cut) begin = at;
  }
  if (at > begin) pieces.push_back(piece.substr(begin));
}

}  // namespace

const char* const kKnownPatterns = "those of GPT-2, Llama-3 and Qwen-2";

std::optional<SplitPattern> find_pattern(std::string_view expression) {
  if (expression == kGpt2) return kGpt2Pattern;
  if (!expression.starts_with(kModernHead) || !expression.ends_with(kModernTail)) return std::nullopt;
  expression.remove_prefix(kModernHead.size());
  if (expression == kModernTail) return SplitPattern{.modern = true, .max_digits = 1};
  constexpr std::string_view kThree = "{1,3}";
  if (expression.starts_with(kThree) && expression.substr(kThree.size()) == kModernTail)
    return SplitPattern{.modern = true, .max_digits = 3};
  return std::nullopt;
}

size_t first_piece(std::string_view text, SplitPattern pattern) {
  if (const size_t length = contraction(text, pattern.modern)) return length;
  const CodePoint c = code_point_at(text, 0);
  const CharacterGroup group = group_of(c.value);
  const bool blank = text[0] == ' ';
  // What may stand before a run: one space, and before letters in Llama-3's any character but a number or an
  // end of line.
  const size_t before = blank ? 1 : 0;
  size_t before_letters = before;
  if (pattern.modern && !is_newline(text[0]) && group != CharacterGroup::letter &&
      group != CharacterGroup::number)
    before_letters = c.bytes;
  if (const size_t length = run(text, before_letters, CharacterGroup::letter)) return before_letters + length;
  if (group == CharacterGroup::number && pattern.max_digits > 0)
    return run(text, 0, CharacterGroup::number, pattern.max_digits);
  if (pattern.max_digits == 0)
    if (const size_t length = run(text, before, CharacterGroup::number)) return before + length;
  if (const size_t length = run(text, before, CharacterGroup::other)) {
    size_t end = before + length;
    while (pattern.modern && end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  return white_space(text, run(text, 0, CharacterGroup::space), pattern.modern);
}

void split(const Splitter& splitter, std::string_view piece, std::vector<std::string_view>& pieces) {
  switch (splitter.kind) {
    case Splitter::Kind::pattern:
      while (!piece.empty()) {
        const size_t length = first_piece(piece, splitter.pattern);
        pieces.push_back(piece.substr(0, length));
        piece.remove_prefix(length);
      }
      return;
    case Splitter::Kind::digit:
    case Splitter::Kind::digits:
      return split_runs(piece, splitter.kind == Splitter::Kind::digit, pieces);
    case Splitter::Kind::bert:
      return split_bert(piece, pieces);
    case Splitter::Kind::space_in_front:
      pieces.push_back(piece);  // by the caller, who has room for it
  }
}

}  // namespace heed::data::detail
