#include <algorithm>
#include <numeric>

#include <heed/data/text/metrics/detail/units.h>
#include <heed/data/text/metrics/error_rate.h>

namespace heed::data {
namespace {

// Levenshtein's distance, a row at a time.
int64_t edit_distance(std::u32string_view a, std::u32string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j + 1] + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::u32string trimmed_code_points(std::string_view text) {
  std::u32string result = detail::code_points(detail::without_trailing_space(text));
  const auto begin = std::find_if_not(result.begin(), result.end(), detail::is_space);
  result.erase(result.begin(), begin);
  return result;
}

}  // namespace

std::string ErrorRate::name() const { return options_.unit == ErrorUnit::words ? "WER" : "CER"; }

double ErrorRate::score(const Statistics& sum) const {
  const double errors = sum[0], length = sum[1];
  return length > 0 ? 100 * (errors / length) : errors > 0 ? 100 : 0;
}

Statistics ErrorRate::count(std::string_view hypothesis, const References& references) const {
  detail::WordSymbols symbols;
  const auto units = [&](std::string_view text) {
    return options_.unit == ErrorUnit::words ? symbols(detail::words(text)) : trimmed_code_points(text);
  };
  const std::u32string mine = units(hypothesis);
  int64_t fewest = -1, longest = 0;
  for (const std::string& reference : references) {
    const std::u32string theirs = units(reference);
    const int64_t errors = edit_distance(mine, theirs), length = static_cast<int64_t>(theirs.size());
    if (fewest >= 0 && (errors > fewest || (errors == fewest && length <= longest))) continue;
    fewest = errors;
    longest = length;
  }
  return {static_cast<double>(fewest), static_cast<double>(longest)};
}

double ExactMatch::score(const Statistics& sum) const { return sum[1] > 0 ? 100 * (sum[0] / sum[1]) : 0; }

Statistics ExactMatch::count(std::string_view hypothesis, const References& references) const {
  const std::vector<std::string_view> mine = detail::words(hypothesis);
  const bool matches = std::any_of(references.begin(), references.end(), [&](const std::string& reference) {
    return detail::words(reference) == mine;
  });
  return {matches ? 1.0 : 0.0, 1.0};
}

}  // namespace heed::data
