#include "apps/common/options/option_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace heed::apps {

std::string describe(const IntegerRange& range) {
  const IntegerRange all;
  if (range.low == all.low && range.high == all.high) return "a whole number";
  if (range.high == all.high) return fmt::format("a whole number, at least {}", range.low);
  if (range.low == all.low) return fmt::format("a whole number, at most {}", range.high);
  return fmt::format("a whole number from {} to {}", range.low, range.high);
}

std::string describe(const NumberRange& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  if (!low && !high) return "a finite number";
  if (!high) return fmt::format("a number {} {}", range.open_low ? "above" : "of at least", range.low);
  if (!low) return fmt::format("a number {} {}", range.open_high ? "below" : "of at most", range.high);
  return fmt::format("a number in {}{}, {}{}", range.open_low ? '(' : '[', range.low, range.high,
                     range.open_high ? ')' : ']');
}

bool contains(const IntegerRange& range, int64_t value) { return value >= range.low && value <= range.high; }

bool contains(const NumberRange& range, double value) {
  if (!std::isfinite(value)) return false;
  const bool above = range.open_low ? value > range.low : value >= range.low;
  const bool below = range.open_high ? value < range.high : value <= range.high;
  return above && below;
}

namespace {

template <class T>
std::optional<T> parse_all(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  if (value == 0 && text.front() == '-') return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) { return parse_all<int64_t>(text); }

std::optional<double> parse_number(std::string_view text) {
  const std::optional<double> value = parse_all<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<bool> parse_flag(std::string_view text) {
  for (const char* yes : {"true", "yes", "on", "1"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "no", "off", "0"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

std::vector<std::string> parse_list(std::string_view text) {
  std::vector<std::string> items;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    items.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) items.emplace_back();
  }
  return items;
}

std::string format_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

namespace {

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestName = 64;
  if (text.empty() || text.size() > kLongestName) return "";
  std::string best;
  size_t best_distance = std::max<size_t>(2, text.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(text, candidate);
    if (distance < best_distance && distance < std::max(text.size(), candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty()) return best;
  for (const std::string& candidate : candidates) {
    if (candidate.starts_with(text) && (best.empty() || candidate.size() < best.size())) best = candidate;
  }
  return best;
}

}  // namespace heed::apps
