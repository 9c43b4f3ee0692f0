#include <algorithm>
#include <cmath>

#include <heed/core/base/check.h>
#include <heed/data/corruption.h>

namespace heed::data {
namespace {

bool is_share(double x) { return x >= 0 && x <= 1; }

int64_t rounded(double x) { return std::llround(x); }

void check(const MaskingOptions& o) {
  HEED_CHECK(is_share(o.rate) && is_share(o.masked) && is_share(o.random) && o.masked + o.random <= 1 + 1e-9,
             ConfigError, "masking: a rate of ", o.rate, ", of which ", o.masked, " are masked and ",
             o.random, " random; shares are from 0 to 1, and those two together 1 at most");
  HEED_CHECK(o.mask >= 0 && o.mask < o.vocabulary, ConfigError, "masking: the mask ", o.mask,
             " is outside the vocabulary of ", o.vocabulary);
  std::vector<int64_t> special = o.special;
  special.push_back(o.mask);
  std::erase_if(special, [&](int64_t id) { return id < 0 || id >= o.vocabulary; });
  std::ranges::sort(special);
  const auto distinct = std::unique(special.begin(), special.end()) - special.begin();
  HEED_CHECK(distinct < o.vocabulary, ConfigError, "masking: all of the vocabulary of ", o.vocabulary,
             " is special");
}

void check(const SpanOptions& o) {
  HEED_CHECK(is_share(o.rate) && o.mean_span >= 1, ConfigError, "span corruption: a rate of ", o.rate,
             " and spans of ", o.mean_span, "; expected 0 to 1, and 1 or more");
}

void check(const InfillingOptions& o) {
  constexpr double kMaxSpan = 100;
  HEED_CHECK(is_share(o.rate) && o.mean_span > 0 && o.mean_span <= kMaxSpan, ConfigError,
             "text infilling: a rate of ", o.rate, " and spans of ", o.mean_span,
             "; expected 0 to 1, and above 0 to ", kMaxSpan);
}

bool is_special(const MaskingOptions& o, int64_t id) {
  return id == o.mask || std::ranges::find(o.special, id) != o.special.end();
}

// Calls take(i) for `chosen` of the numbers 0 to count - 1, in order, any choice as likely (Knuth's
// algorithm S).
template <class Take>
void choose(int64_t count, int64_t chosen, SampleDraw& draw, Take&& take) {
  for (int64_t i = 0; i < count && chosen > 0; ++i)
    if (draw.below(count - i) < chosen) {
      take(i);
      --chosen;
    }
}

// Lengths of `parts` parts of `count` things, each 1 or more, any division as likely.
std::vector<int64_t> divided(int64_t count, int64_t parts, SampleDraw& draw) {
  std::vector<int64_t> lengths;
  int64_t first = 0;
  choose(count - 1, parts - 1, draw, [&](int64_t boundary) {
    lengths.push_back(boundary + 1 - first);
    first = boundary + 1;
  });
  lengths.push_back(count - first);
  return lengths;
}

struct SpanCounts {
  int64_t tokens = 0, spans = 0;
};

SpanCounts count_spans(int64_t length, const SpanOptions& o) {
  if (length < 2 || o.rate == 0) return {};
  const auto size = static_cast<double>(length);
  const int64_t tokens = std::clamp<int64_t>(rounded(o.rate * size), 1, length - 1);
  const int64_t spans = std::max<int64_t>(1, rounded(static_cast<double>(tokens) / o.mean_span));
  return {tokens, std::min(spans, length - tokens)};  // each has a token before it
}

void append(TokenIds& to, const TokenIds& from, int64_t first, int64_t count) {
  to.insert(to.end(), from.begin() + first, from.begin() + first + count);
}

std::string fingerprint_of(const Dataset<TokenIds>& texts, uint64_t seed, const std::string& settings) {
  return concat(texts.fingerprint(), " seed ", seed, ' ', settings);
}

template <class Look>
void for_each_length(const Dataset<TokenIds>& texts, Look&& look) {
  for (int64_t i = 0; i < texts.size(); ++i) look(std::ssize(texts.get(0, i)));
}

}  // namespace

MaskedText mask_tokens(const TokenIds& text, const MaskingOptions& o, SampleDraw& draw) {
  check(o);
  MaskedText result{text, TokenIds(text.size(), kNoLabel)};
  PooledVector<int64_t> places;
  for (int64_t i = 0; i < std::ssize(text); ++i)
    if (!is_special(o, text[static_cast<size_t>(i)])) places.push_back(i);
  const int64_t count = std::ssize(places);
  const int64_t chosen =
      o.rate == 0 || count == 0 ? 0 : std::max<int64_t>(1, rounded(o.rate * static_cast<double>(count)));
  choose(count, chosen, draw, [&](int64_t number) {
    const auto i = static_cast<size_t>(places[static_cast<size_t>(number)]);
    result.labels[i] = text[i];
    const double kind = draw.uniform();
    if (kind < o.masked) {
      result.ids[i] = o.mask;
    } else if (kind < o.masked + o.random) {
      do result.ids[i] = draw.below(o.vocabulary);
      while (is_special(o, result.ids[i]));
    }
  });
  return result;
}

Pair corrupt_spans(const TokenIds& text, const SpanOptions& o, SampleDraw& draw) {
  check(o);
  const auto [tokens, spans] = count_spans(std::ssize(text), o);
  HEED_CHECK(spans <= std::ssize(o.sentinels), ConfigError, "span corruption: ", spans,
             " spans in a text of ", text.size(), " tokens, and ", o.sentinels.size(), " sentinels");
  if (spans == 0) return {text, {}};
  const std::vector<int64_t> taken = divided(tokens, spans, draw),
                             left = divided(std::ssize(text) - tokens, spans, draw);
  Pair pair;
  int64_t at = 0;
  for (size_t i = 0; i < taken.size(); ++i) {
    append(pair.source, text, at, left[i]);
    pair.source.push_back(o.sentinels[i]);
    pair.target.push_back(o.sentinels[i]);
    append(pair.target, text, at + left[i], taken[i]);
    at += left[i] + taken[i];
  }
  return pair;
}

Pair infill(const TokenIds& text, const InfillingOptions& o, SampleDraw& draw) {
  check(o);
  const int64_t length = std::ssize(text), tokens = rounded(o.rate * static_cast<double>(length));
  std::vector<int64_t> spans;
  int64_t inserted = 0;
  for (int64_t left = tokens; left > 0; left -= spans.back()) {
    int64_t drawn = std::min(draw.poisson(o.mean_span), left);
    if (drawn == 0 && inserted++ >= length) drawn = 1;
    spans.push_back(drawn);
  }
  for (size_t i = spans.size(); i-- > 1;)  // the last was cut
    std::swap(spans[i], spans[static_cast<size_t>(draw.below(static_cast<int64_t>(i) + 1))]);
  // Which of the places, of remaining tokens and spans in a row, have spans.
  const int64_t places = length - tokens + std::ssize(spans);
  Pair pair{{}, text};
  int64_t at = 0, place = 0;
  size_t span = 0;
  choose(places, std::ssize(spans), draw, [&](int64_t chosen) {
    append(pair.source, text, at, chosen - place);
    pair.source.push_back(o.mask);
    at += chosen - place + spans[span++];
    place = chosen + 1;
  });
  append(pair.source, text, at, length - at);
  return pair;
}

MaskedDataset::MaskedDataset(TextSource texts, MaskingOptions options, uint64_t seed)
    : texts_(std::move(texts)), options_(std::move(options)), seed_(seed) {
  check(options_);
}

MaskedText MaskedDataset::get(int64_t epoch, int64_t index) const {
  SampleDraw draw(seed_, epoch, index);
  return mask_tokens(texts_->get(epoch, index), options_, draw);
}

std::string MaskedDataset::fingerprint() const {
  return fingerprint_of(*texts_, seed_,
                        concat("masking ", options_.rate, ' ', options_.masked, ' ', options_.random, ' ',
                               options_.mask, ' ', options_.vocabulary));
}

int64_t MaskedBatch::labeled() const {
  return std::ssize(labels) - std::count(labels.begin(), labels.end(), kNoLabel);
}

Collate<MaskedText, MaskedBatch> masked_collate(int64_t most_rows) {
  const auto batch = [](std::span<const MaskedText> texts, std::span<const int64_t> numbers) {
    MaskedBatch made;
    for (const MaskedText& text : texts) {
      made.texts.first.push_back(made.texts.rows);
      made.texts.length.push_back(static_cast<int32_t>(text.ids.size()));
      made.texts.rows += std::ssize(text.ids);
      made.texts.max_length = std::max(made.texts.max_length, made.texts.length.back());
      append(made.ids, text.ids, 0, std::ssize(text.ids));
      append(made.labels, text.labels, 0, std::ssize(text.labels));
    }
    made.samples.assign(numbers.begin(), numbers.end());
    return made;
  };
  const auto size = [](const MaskedText& text) {
    return SampleSize{std::ssize(text.ids), {std::ssize(text.ids), 0}};
  };
  return {.batch = batch, .size = size, .most_rows = most_rows};
}

SpanCorruption::SpanCorruption(TextSource texts, SpanOptions options, int64_t vocabulary, uint64_t seed)
    : texts_(std::move(texts)), options_(std::move(options)), vocabulary_(vocabulary), seed_(seed) {
  check(options_);
  for_each_length(*texts_, [&](int64_t length) {
    const SpanCounts counts = count_spans(length, options_);
    HEED_CHECK(counts.spans <= std::ssize(options_.sentinels), ConfigError, "span corruption: ", counts.spans,
               " spans in a text of ", length, " tokens, and ", options_.sentinels.size(), " sentinels");
    longest_source_ = std::max(longest_source_, length - counts.tokens + counts.spans);
    longest_target_ = std::max(longest_target_, counts.tokens + counts.spans);
  });
}

Pair SpanCorruption::get(int64_t epoch, int64_t index) const {
  SampleDraw draw(seed_, epoch, index);
  return corrupt_spans(texts_->get(epoch, index), options_, draw);
}

std::string SpanCorruption::fingerprint() const {
  return fingerprint_of(*texts_, seed_, concat("spans ", options_.rate, ' ', options_.mean_span));
}

TextInfilling::TextInfilling(TextSource texts, InfillingOptions options, int64_t vocabulary, uint64_t seed)
    : texts_(std::move(texts)), options_(options), vocabulary_(vocabulary), seed_(seed) {
  check(options_);
  for_each_length(*texts_, [&](int64_t length) { longest_ = std::max(longest_, length); });
}

Pair TextInfilling::get(int64_t epoch, int64_t index) const {
  SampleDraw draw(seed_, epoch, index);
  return infill(texts_->get(epoch, index), options_, draw);
}

std::string TextInfilling::fingerprint() const {
  return fingerprint_of(*texts_, seed_, concat("infilling ", options_.rate, ' ', options_.mean_span));
}

}  // namespace heed::data
