// Text without streams: no locale changes what is written, and no failed allocation shortens it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace heed {

/// The parts between the separators, empty ones too: one more than there are separators.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The text without the ASCII white space around it.
std::string_view trim(std::string_view text);

/// A number in decimal, the same in every locale: so many digits after the point, the same with an exponent
/// ("1.50e+10"), or so many significant digits: no zeros at the end, an exponent where that is shorter.
std::string fixed_text(double value, int digits);
std::string scientific_text(double value, int digits);
std::string significant_text(double value, int digits);

/// An integer with its thousands apart: 1396244 → "1,396,244".
std::string grouped(int64_t number);

namespace detail {

void append_integer(std::string& out, long long value);
void append_integer(std::string& out, unsigned long long value);

template <class T>
void append_part(std::string& out, const T& part) {
  if constexpr (std::is_same_v<T, char>)
    out += part;
  else if constexpr (std::is_convertible_v<const T&, std::string_view>)
    out += std::string_view(part);
  else if constexpr (std::is_floating_point_v<T>)
    out += significant_text(static_cast<double>(part), 6);
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    append_integer(out, static_cast<long long>(part));
  else if constexpr (std::is_integral_v<T>)
    append_integer(out, static_cast<unsigned long long>(part));
  else
    append_text(out, part);
}

}  // namespace detail

/// Joins its arguments into one string: text as it is, a bool as 0 or 1, floating types with six digits, and
/// others by `append_text(std::string& out, const T&)`, which stands in the namespace of T.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (detail::append_part(out, parts), ...);
  return out;
}

}  // namespace heed
