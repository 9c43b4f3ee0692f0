#include <algorithm>
#include <utf8proc.h>

#include <heed/core/base/utf8.h>
#include <heed/data/text/metrics/detail/units.h>

namespace heed::data::detail {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// The code point that text begins with, whose bytes are removed.
char32_t take(std::string_view& text) {
  const CodePoint first = first_code_point(text);
  text.remove_prefix(first.length > 0 ? first.length : 1);
  return first.length > 0 ? first.value : kReplacement;
}

void append(std::string& text, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

// Unicode's Case_Ignorable (chapter 3.13): marks, format characters, modifiers, and what may stand within a
// word.
bool is_case_ignorable(char32_t c) {
  constexpr std::u32string_view kWithinWords =
      U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kWithinWords.find(c) != std::u32string_view::npos;
  }
}

// Whether a letter comes before position i, and none after it, of the same word.
bool ends_word(const std::u32string& text, size_t i) {
  size_t before = i;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = i + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  while (!text.empty()) result += take(text);
  return result;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::u32string characters(std::string_view text) {
  std::u32string result = code_points(text);
  std::erase_if(result, is_space);
  return result;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  const char* begin = nullptr;  // of the word that text is in
  while (true) {
    const char* const here = text.data();
    if (text.empty() || is_space(take(text))) {
      if (begin) result.emplace_back(begin, static_cast<size_t>(here - begin));
      begin = nullptr;
      if (here == text.data()) return result;
    } else if (!begin) {
      begin = here;
    }
  }
}

std::string_view without_trailing_space(std::string_view text) {
  size_t end = 0;
  for (std::string_view rest = text; !rest.empty();)
    if (!is_space(take(rest))) end = text.size() - rest.size();
  return text.substr(0, end);
}

std::string lower(std::string_view text) {
  const std::u32string letters = code_points(text);
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < letters.size(); ++i) {
    const char32_t c = letters[i];
    if (c == U'\u0130')  // I with a dot, the only letter that becomes two
      result += "i\xcc\x87";
    else if (c == U'\u03a3')
      append(result, ends_word(letters, i) ? U'\u03c2' : U'\u03c3');
    else
      append(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return result;
}

std::u32string WordSymbols::operator()(const std::vector<std::string_view>& words) {
  std::u32string result;
  result.reserve(words.size());
  for (const std::string_view word : words)
    result += symbols_.emplace(word, static_cast<char32_t>(symbols_.size())).first->second;
  return result;
}

NgramCounts count_ngrams(std::u32string_view sequence, size_t order) {
  NgramCounts counts;
  for (size_t i = 0; i + order <= sequence.size(); ++i) ++counts[sequence.substr(i, order)];
  return counts;
}

int64_t count_matches(const NgramCounts& a, const NgramCounts& b) {
  int64_t matches = 0;
  for (const auto& [ngram, count] : a)
    if (const auto found = b.find(ngram); found != b.end()) matches += std::min(count, found->second);
  return matches;
}

}  // namespace heed::data::detail
