#include <heed/core/base/check.h>
#include <heed/data/text/metrics/chrf.h>
#include <heed/data/text/metrics/detail/units.h>

namespace heed::data {
namespace {

constexpr size_t kCharacterOrders = 6, kMaxWordOrders = 6;
constexpr double kRecallWeight = 4;  // beta 2, squared
// Statistics of each order: n-grams of the hypothesis, of the reference, and those of both.
constexpr size_t kOfOrder = 3;

bool is_ascii_mark(char c) {
  return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c <= '~');
}

// Words, and apart from them the mark that each ends with, or else the one that it begins with.
std::vector<std::string_view> words_and_marks(std::string_view text) {
  std::vector<std::string_view> result;
  for (const std::string_view word : detail::words(text)) {
    const size_t cut = word.size() == 1              ? 0
                       : is_ascii_mark(word.back())  ? word.size() - 1
                       : is_ascii_mark(word.front()) ? 1
                                                     : 0;
    if (cut > 0) result.push_back(word.substr(0, cut));
    result.push_back(word.substr(cut));
  }
  return result;
}

struct Units {
  std::u32string characters, words;

  // Of characters for the first orders, of words for the others.
  detail::NgramCounts counts(size_t place) const {
    return place < kCharacterOrders ? detail::count_ngrams(characters, place + 1)
                                    : detail::count_ngrams(words, place - kCharacterOrders + 1);
  }
};

double total(const detail::NgramCounts& counts) {
  int64_t sum = 0;
  for (const auto& entry : counts) sum += entry.second;
  return static_cast<double>(sum);
}

}  // namespace

Chrf::Chrf(const ChrfOptions& options) : word_order_(static_cast<size_t>(options.word_order)) {
  HEED_CHECK(options.word_order >= 0 && word_order_ <= kMaxWordOrders, ConfigError,
             "chrF: word_order must be 0 to ", kMaxWordOrders, ", got ", options.word_order);
}

std::string Chrf::name() const {
  return word_order_ <= 2 ? "chrF" + std::string(word_order_, '+') : concat("chrF+", word_order_);
}

double Chrf::score(const Statistics& sum) const {
  double precision = 0, recall = 0;
  int orders = 0;
  for (size_t i = 0; i < sum.size(); i += kOfOrder) {
    const double mine = sum[i], theirs = sum[i + 1], matches = sum[i + 2];
    if (mine == 0 || theirs == 0) continue;
    precision += matches / mine;
    recall += matches / theirs;
    ++orders;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  return 100 * (1 + kRecallWeight) * precision * recall / (kRecallWeight * precision + recall);
}

Statistics Chrf::count(std::string_view hypothesis, const References& references) const {
  const size_t orders = kCharacterOrders + word_order_;
  detail::WordSymbols symbols;
  const auto units = [&](std::string_view text) {
    return Units{detail::characters(text),
                 word_order_ > 0 ? symbols(words_and_marks(text)) : std::u32string()};
  };
  const Units mine = units(hypothesis);
  std::vector<detail::NgramCounts> my_counts;
  for (size_t i = 0; i < orders; ++i) my_counts.push_back(mine.counts(i));
  Statistics best;
  double best_score = -1;
  for (const std::string& reference : references) {
    const Units theirs = units(reference);
    Statistics result;
    for (size_t i = 0; i < orders; ++i) {
      const detail::NgramCounts counts = theirs.counts(i);
      // What the reference is too short for is no mistake.
      result.push_back(counts.empty() ? 0 : total(my_counts[i]));
      result.push_back(total(counts));
      result.push_back(static_cast<double>(detail::count_matches(my_counts[i], counts)));
    }
    if (const double its_score = score(result); its_score > best_score) {
      best_score = its_score;
      best = result;
    }
  }
  return best;
}

}  // namespace heed::data
