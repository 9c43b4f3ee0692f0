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

std::string fixed_text(double value, int digits) {
  return number_text(value, std::chars_format::fixed, digits);
}
std::string scientific_text(double value, int digits) {
  return number_text(value, std::chars_format::scientific, digits);
}
std::string significant_text(double value, int digits) {
  return number_text(value, std::chars_format::general, digits);
}

namespace detail {

void append_integer(std::string& out, long long value) { append_number(out, value); }
void append_integer(std::string& out, unsigned long long value) { append_number(out, value); }

}  // namespace detail
}  // namespace heed
