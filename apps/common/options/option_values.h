// Strict reading and exact writing of option values, and the words for what is expected of them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heed::apps {

/// What an option can hold: a flag, a whole number, a number, a text or a list of texts.
using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

/// Whole numbers from low to high, both included.
struct IntegerRange {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
};

/// Finite numbers from low to high; an open end is itself excluded.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;
  bool open_high = false;
};

/// "a whole number from 1 to 8", "a number above 0", "a number in [0, 1)", ….
std::string describe(const IntegerRange& range);
std::string describe(const NumberRange& range);

bool contains(const IntegerRange& range, int64_t value);
/// NaN and infinities are in no range.
bool contains(const NumberRange& range, double value);

/// Reads all of the text or nothing: no spaces, sign +, hexadecimal, "-0", locale or overflow.
std::optional<int64_t> parse_integer(std::string_view text);
/// The same for a finite decimal number; "1e999", "nan" and "inf" are none.
std::optional<double> parse_number(std::string_view text);
/// true/false, yes/no, on/off, 1/0.
std::optional<bool> parse_flag(std::string_view text);
/// Splits at commas; "" is the empty list.
std::vector<std::string> parse_list(std::string_view text);

/// The shortest decimal text that reads back as the same double, always with a point or an exponent.
std::string format_number(double value);

/// The candidate closest to text by edit distance, or the shortest one that text begins; "" where none is
/// close.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace heed::apps
