#include <algorithm>
#include <charconv>

#include <heed/core/base/check.h>
#include <heed/data/detail/task_kind.h>
#include <heed/data/detail/task_terms.h>
#include <heed/data/task.h>

namespace heed::data {
namespace {

// Turns each number of a row of symbols round: what lies between signs.
TokenIds with_numbers_reversed(TokenIds symbols) {
  const auto is_sign = [](int64_t symbol) { return symbol >= kFirstSymbol + 10; };
  for (auto first = symbols.begin(); first != symbols.end();) {
    const auto last = std::find_if(first, symbols.end(), is_sign);
    std::reverse(first, last);
    first = last == symbols.end() ? last : last + 1;
  }
  return symbols;
}

}  // namespace

Task::Task(std::string_view text) : kind_(nullptr) {
  for (const detail::TaskKind& kind : detail::task_kinds())
    if (text == kind.name) kind_ = &kind;
  if (!kind_) terms_ = std::make_shared<const detail::TaskTerms>(detail::parse_terms(text));
  name_ = kind_ ? kind_->name : detail::to_text(*terms_);
}

std::string Task::names() {
  std::string names = detail::function_names();
  for (const detail::TaskKind& kind : detail::task_kinds()) names += concat(", ", kind.name);
  return names;
}

int64_t Task::least_vocab() const { return kind_ ? kind_->least_vocab : kFirstSymbol + 1; }

std::string Task::vocab_text() const {
  return concat(least_vocab(), " (", kind_ ? kind_->vocab_text : "pad, start, end and one symbol", ")");
}

int64_t Task::longest_source(int64_t length, int64_t vocab) const {
  return kind_ ? kind_->longest_source(length, vocab) : length;
}

int64_t Task::longest_target(int64_t length) const {
  return kind_ ? kind_->longest_target(length) : detail::growth(*terms_) * length;
}

int64_t Task::sources(int64_t min_length, int64_t max_length, int64_t vocab) const {
  constexpr int64_t kMany = int64_t{1} << 62;
  int64_t total = 0;
  for (int64_t length = min_length; length <= max_length && total < kMany; ++length)
    total = std::min(kMany, total + (kind_ ? kind_->sources(length, vocab)
                                           : detail::capped_power(vocab - kFirstSymbol, length)));
  return has_numbers() ? detail::capped_product(total, total) : total;
}

bool Task::has_numbers() const { return kind_ && kind_->numbers; }

TokenIds Task::solve(const TokenIds& source, int64_t vocab, bool last_digit_first) const {
  if (!kind_) return detail::evaluate(*terms_, source, vocab);
  if (!last_digit_first || !kind_->numbers) return kind_->solve(source, vocab);
  return with_numbers_reversed(kind_->solve(with_numbers_reversed(source), vocab));
}

TokenIds Task::draw(int64_t min_length, int64_t max_length, int64_t vocab, bool last_digit_first,
                    detail::TaskDraw& draw) const {
  if (kind_) {
    TokenIds source = kind_->draw(min_length, max_length, vocab, draw);
    return last_digit_first && kind_->numbers ? with_numbers_reversed(std::move(source)) : source;
  }
  TokenIds source(static_cast<size_t>(min_length + draw.below(max_length - min_length + 1)));
  for (int64_t& symbol : source) symbol = kFirstSymbol + draw.below(vocab - kFirstSymbol);
  return source;
}

std::string Task::text(int64_t symbol) const {
  std::string text = kind_ ? kind_->text(symbol) : "";
  return text.empty() ? std::to_string(symbol) : text;
}

std::string Task::text(std::span<const int64_t> symbols) const {
  const bool characters =
      kind_ && std::ranges::none_of(symbols, [&](int64_t s) { return kind_->text(s).empty(); });
  std::string text;
  for (const int64_t symbol : symbols) text += (text.empty() || characters ? "" : " ") + this->text(symbol);
  return text;
}

TokenIds Task::symbols(std::string_view text, int64_t vocab) const {
  TokenIds result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const TokenIds symbols = word_symbols(word);
    for (const int64_t symbol : symbols)
      HEED_CHECK(symbol >= kFirstSymbol && symbol < vocab, DataError, "'", text, "': '", word,
                 "' is no symbol of the vocabulary, ", this->text(kFirstSymbol), " to ",
                 this->text(vocab - 1));
    result.insert(result.end(), symbols.begin(), symbols.end());
    at = end + 1;
  }
  HEED_CHECK(!result.empty(), DataError, "'", text, "' holds no symbol");
  return result;
}

// Of a word without spaces: characters that all have names, else one number, which is -1 for what is none.
TokenIds Task::word_symbols(std::string_view word) const {
  TokenIds named;
  for (size_t at = 0; kind_ && at < word.size();) {
    size_t end = at + 1;
    while (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xc0) == 0x80) ++end;
    named.push_back(named_symbol(word.substr(at, end - at)));
    at = end;
  }
  if (word.empty() || (kind_ && std::ranges::find(named, -1) == named.end())) return named;
  int64_t symbol = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), symbol);
  return {error == std::errc() && end == word.data() + word.size() ? symbol : -1};
}

int64_t Task::named_symbol(std::string_view name) const {
  constexpr int64_t kMaxNamed = 16;
  if (name == "*") name = "×";
  for (int64_t symbol = kFirstSymbol; symbol < kFirstSymbol + kMaxNamed; ++symbol)
    if (kind_->text(symbol) == name) return symbol;
  return -1;
}

}  // namespace heed::data
