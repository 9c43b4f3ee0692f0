#include <charconv>

#include <heed/core/base/text.h>

namespace heed {
namespace {

// The longest is -1.8e308 in fixed point with its digits.
template <class... How>
void append_number(std::string& out, How... how) {
  char text[512];
  const std::to_chars_result result = std::to_chars(text, text + sizeof text, how...);
  out.append(text, result.ec == std::errc() ? result.ptr : text);
}

std::string number_text(double value, std::chars_format format, int digits) {
  std::string out;
  append_number(out, value, format, digits);
  return out;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

std::string fixed_text(double value, int digits) {
  return number_text(value, std::chars_format::fixed, digits);
}
std::string scientific_text(double value, int digits) {
  return number_text(value, std::chars_format::scientific, digits);
}
std::string significant_text(double value, int digits) {
  return number_text(value, std::chars_format::general, digits);
}

std::string grouped(int64_t number) {
  std::string text = concat(number);
  for (size_t at = text.size(), first = number < 0 ? 1 : 0; at > first + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

namespace detail {

void append_integer(std::string& out, long long value) { append_number(out, value); }
void append_integer(std::string& out, unsigned long long value) { append_number(out, value); }

}  // namespace detail
}  // namespace heed
