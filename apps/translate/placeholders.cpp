#include "apps/translate/placeholders.h"

#include <algorithm>
#include <cctype>

namespace heed::apps {
namespace {

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }
bool is_name(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

size_t skip(std::string_view text, size_t at, bool (*wanted)(char)) {
  while (at < text.size() && wanted(text[at])) ++at;
  return at;
}

/// Bytes of the directive of printf that text begins with; 0 for none. A space is no flag here: "100 % of".
size_t printf_length(std::string_view text) {
  size_t at = 1;
  if (text.substr(at).starts_with('%')) return 2;
  if (text.substr(at).starts_with('(')) {
    at = text.find(')');
    if (at == std::string_view::npos) return 0;
    ++at;
  }
  constexpr std::string_view kFlags = "-+#0'I123456789$*.hlLqjzt", kConversions = "diouxXeEfFgGaAcCsSpnm@";
  at = std::min(text.find_first_not_of(kFlags, at), text.size());
  return at < text.size() && kConversions.find(text[at]) != std::string_view::npos ? at + 1 : 0;
}

/// The same of {0}, {name}, {0:>8}.
size_t brace_length(std::string_view text) {
  const size_t end = text.find_first_of("{}\n ", 1);
  return end != std::string_view::npos && text[end] == '}' ? end + 1 : 0;
}

size_t tag_length(std::string_view text) {
  const size_t name = text.substr(1).starts_with('/') ? 2 : 1;
  if (name >= text.size() || !is_letter(text[name])) return 0;
  const size_t end = text.find_first_of("<>", name);
  return end != std::string_view::npos && text[end] == '>' ? end + 1 : 0;
}

size_t variable_length(std::string_view text) {
  const bool braces = text.substr(1).starts_with('{');
  const size_t begin = braces ? 2 : 1;
  if (begin >= text.size() || !(is_letter(text[begin]) || text[begin] == '_')) return 0;
  const size_t end = skip(text, begin, is_name);
  if (!braces) return end;
  return end < text.size() && text[end] == '}' ? end + 1 : 0;
}

/// &amp;, &#8211;
size_t entity_length(std::string_view text) {
  const size_t begin = text.substr(1).starts_with('#') ? 2 : 1, end = skip(text, begin, is_name);
  return end > begin && end < text.size() && text[end] == ';' ? end + 1 : 0;
}

size_t length_at(std::string_view text) {
  switch (text.front()) {
    case '%':
      return printf_length(text);
    case '{':
      return brace_length(text);
    case '<':
      return tag_length(text);
    case '$':
      return variable_length(text);
    case '&':
      return entity_length(text);
    default:
      return 0;
  }
}

/// An accelerator's mark stands before a letter, and where a word begins or, but for an underscore, within
/// one.
bool is_accelerator(std::string_view text, size_t at) {
  const char mark = text[at];
  if (mark != '_' && mark != '&' && mark != '~') return false;
  if (at + 1 >= text.size() || !(is_letter(text[at + 1]) || is_digit(text[at + 1]))) return false;
  return mark == '~' || mark == '&' || at == 0 || !is_name(text[at - 1]);
}

/// Whether it says itself what it stands for.
bool is_named(std::string_view part) {
  if (part.front() == '%') return part.find_first_of("($") != std::string_view::npos;
  return part != "{}" && part.front() != '<';
}

}  // namespace

std::vector<std::string> placeholders(std::string_view text) {
  std::vector<std::string> in_order, named;
  for (size_t at = 0; at < text.size();) {
    const size_t length = length_at(text.substr(at));
    if (length > 0) {
      const std::string_view part = text.substr(at, length);
      (is_named(part) ? named : in_order).emplace_back(part);
    } else if (is_accelerator(text, at)) {
      named.emplace_back(1, text[at]);
    }
    at += std::max<size_t>(length, 1);
  }
  std::sort(named.begin(), named.end());
  in_order.insert(in_order.end(), named.begin(), named.end());
  return in_order;
}

}  // namespace heed::apps
