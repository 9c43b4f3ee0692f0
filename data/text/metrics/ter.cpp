#include <algorithm>
#include <limits>

#include <heed/data/text/metrics/detail/ter_edits.h>
#include <heed/data/text/metrics/detail/units.h>
#include <heed/data/text/metrics/ter.h>

namespace heed::data {

double Ter::score(const Statistics& sum) const {
  const double edits = sum[0], length = sum[1];
  return length > 0 ? 100 * (edits / length) : edits > 0 ? 100 : 0;
}

Statistics Ter::count(std::string_view hypothesis, const References& references) const {
  std::vector<std::string> texts;  // which symbols refer to
  texts.reserve(references.size() + 1);
  detail::WordSymbols symbols;
  const auto words = [&](std::string_view text) {
    return symbols(
        detail::words(texts.emplace_back(options_.case_sensitive ? std::string(text) : detail::lower(text))));
  };
  const std::u32string mine = words(hypothesis);
  int64_t fewest = std::numeric_limits<int64_t>::max();
  double lengths = 0;
  for (const std::string& reference : references) {
    const std::u32string theirs = words(reference);
    fewest = std::min(fewest, detail::count_ter_edits(mine, theirs));
    lengths += static_cast<double>(theirs.size());
  }
  return {static_cast<double>(fewest), lengths / static_cast<double>(references.size())};
}

}  // namespace heed::data
