#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/io/sha256.h>
#include <heed/data/text/text_pairs.h>
#include <heed/data/text/unicode.h>

namespace heed::data {
namespace {

bool blank(std::string_view text) {
  while (!text.empty()) {
    const CodePoint first = first_code_point(text);
    if (character_class(static_cast<int32_t>(first.value)) != CharacterClass::space) return false;
    text.remove_prefix(std::max<size_t>(first.length, 1));
  }
  return true;
}

/// Where a source stands between 0 and 1.
double position_of(std::string_view source) {
  const Sha256::Digest digest = sha256(source.data(), source.size());
  uint64_t word = 0;
  for (size_t i = 0; i < 8; ++i) word = word << 8 | digest[i];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

void check_shares(double valid_share, double test_share) {
  HEED_CHECK(valid_share >= 0 && test_share >= 0 && valid_share + test_share < 1, ConfigError,
             "the shares of validation and test are ", valid_share, " and ", test_share,
             "; expected none negative, and less than 1 together");
}

}  // namespace

size_t PairFilter::DigestHash::operator()(const Digest& digest) const noexcept {
  size_t word;
  std::memcpy(&word, digest.data(), sizeof word);
  return word;
}

PairFilter::PairFilter(const TextFilter& options) : options_(options) {}

int64_t FilterCounts::*PairFilter::reason(std::string_view source, std::string_view target) {
  if (blank(source) || blank(target)) return &FilterCounts::empty;
  if (options_.equal && source == target) return &FilterCounts::equal;
  const auto [shorter, longer] = std::minmax({count_code_points(source), count_code_points(target)});
  if (options_.max_length > 0 && longer > options_.max_length) return &FilterCounts::length;
  if (options_.max_ratio > 0 &&
      static_cast<double>(longer) > options_.max_ratio * static_cast<double>(shorter))
    return &FilterCounts::ratio;
  return options_.duplicates && !is_new(source, target) ? &FilterCounts::duplicates : &FilterCounts::kept;
}

bool PairFilter::is_new(std::string_view source, std::string_view target) {
  Sha256 hash;
  const uint64_t length = source.size();
  hash.update(&length, sizeof length);
  hash.update(source.data(), source.size());
  hash.update(target.data(), target.size());
  const Sha256::Digest whole = hash.finish();
  Digest half;
  std::copy_n(whole.begin(), half.size(), half.begin());
  return seen_.insert(half).second;
}

bool PairFilter::keeps(std::string_view source, std::string_view target) {
  const auto count = reason(source, target);
  ++(counts_.*count);
  return count == &FilterCounts::kept;
}

FilterCounts filter(TextPairs& pairs, const TextFilter& options) {
  PairFilter filter(options);
  size_t kept = 0;
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    if (!filter.keeps(pairs.sources[i], pairs.targets[i])) continue;
    if (kept != i) {
      pairs.sources[kept] = std::move(pairs.sources[i]);
      pairs.targets[kept] = std::move(pairs.targets[i]);
    }
    ++kept;
  }
  pairs.sources.resize(kept);
  pairs.targets.resize(kept);
  return filter.counts();
}

SplitPart part_of(std::string_view source, double valid_share, double test_share) {
  check_shares(valid_share, test_share);
  const double position = position_of(source);
  return position < test_share                 ? SplitPart::test
         : position < test_share + valid_share ? SplitPart::valid
                                               : SplitPart::train;
}

TextSplits split_by_source(const TextPairs& pairs, double valid_share, double test_share) {
  check_shares(valid_share, test_share);
  TextSplits splits;
  for (size_t i = 0; i < pairs.sources.size(); ++i)
    splits.part(part_of(pairs.sources[i], valid_share, test_share)).add(pairs.sources[i], pairs.targets[i]);
  return splits;
}

}  // namespace heed::data
