#include <algorithm>
#include <array>

#include <heed/core/base/check.h>
#include <heed/data/detail/task_kind.h>
#include <heed/data/detail/task_terms.h>
#include <heed/data/task.h>

namespace heed::data::detail {
namespace {

struct Function {
  const char* name;
  int64_t growth;  // times as long as what it is of, at most
  TokenIds (*apply)(TokenIds symbols, int64_t vocab);
};

TokenIds reversed(TokenIds symbols, int64_t) {
  std::reverse(symbols.begin(), symbols.end());
  return symbols;
}

TokenIds sorted(TokenIds symbols, int64_t) {
  std::sort(symbols.begin(), symbols.end());
  return symbols;
}

TokenIds unique(TokenIds symbols, int64_t) {
  auto end = symbols.begin();
  for (const int64_t symbol : symbols)
    if (std::find(symbols.begin(), end, symbol) == end) *end++ = symbol;
  symbols.erase(end, symbols.end());
  return symbols;
}

TokenIds shifted(TokenIds symbols, int64_t vocab) {
  for (int64_t& symbol : symbols) symbol = symbol + 1 < vocab ? symbol + 1 : kFirstSymbol;
  return symbols;
}

TokenIds with_reverse(TokenIds symbols, int64_t) {
  const TokenIds source = symbols;
  symbols.insert(symbols.end(), source.rbegin(), source.rend());
  return symbols;
}

constexpr std::array<Function, 6> kFunctions{{
    {"copy_reverse", 2, with_reverse},
    {"copy", 1, [](TokenIds symbols, int64_t) { return symbols; }},
    {"reverse", 1, reversed},
    {"sort", 1, sorted},
    {"unique", 1, unique},
    {"shift", 1, shifted},
}};

// terms: term { "|" term }; term: name [ "(" terms ")" ]
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  TaskTerms parse() {
    TaskTerms result = terms(0);
    HEED_CHECK(at_ == text_.size(), ConfigError, "task '", text_, "': '", text_.substr(at_),
               "' is left over");
    return result;
  }

 private:
  TaskTerms terms(int depth) {
    constexpr int kDeepest = 16;
    HEED_CHECK(depth <= kDeepest, ConfigError, "a task is nested at most ", kDeepest, " deep");
    TaskTerms result;
    do result.push_back(term(depth));
    while (takes('|'));
    return result;
  }

  TaskTerm term(int depth) {
    skip_spaces();
    const size_t first = at_;
    while (at_ < text_.size() && (text_[at_] == '_' || (text_[at_] >= 'a' && text_[at_] <= 'z'))) ++at_;
    const std::string_view word = text_.substr(first, at_ - first);
    const auto found = std::ranges::find_if(kFunctions, [&](const Function& f) { return word == f.name; });
    HEED_CHECK(found != kFunctions.end(), ConfigError, "unknown task '", word.empty() ? text_ : word,
               "'; expected ", Task::names(), ", of which functions combine as in \"copy | reverse(sort)\"");
    TaskTerm result{static_cast<size_t>(found - kFunctions.begin()), {}};
    if (takes('(')) {
      result.of = terms(depth + 1);
      HEED_CHECK(takes(')'), ConfigError, "task '", text_, "': a ) is missing");
    }
    skip_spaces();
    return result;
  }

  bool takes(char c) {
    skip_spaces();
    const bool found = at_ < text_.size() && text_[at_] == c;
    at_ += found;
    return found;
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

TaskTerms parse_terms(std::string_view text) {
  constexpr size_t kLongest = 256;
  HEED_CHECK(text.size() <= kLongest, ConfigError, "a task has at most ", kLongest, " characters");
  return Parser(text).parse();
}

std::string to_text(const TaskTerms& terms) {
  std::string text;
  for (const TaskTerm& term : terms) {
    text += concat(text.empty() ? "" : " | ", kFunctions[term.function].name);
    if (!term.of.empty()) text += concat("(", to_text(term.of), ")");
  }
  return text;
}

TokenIds evaluate(const TaskTerms& terms, const TokenIds& source, int64_t vocab) {
  TokenIds target;
  for (const TaskTerm& term : terms) {
    const TokenIds part =
        kFunctions[term.function].apply(term.of.empty() ? source : evaluate(term.of, source, vocab), vocab);
    target.insert(target.end(), part.begin(), part.end());
  }
  return target;
}

int64_t growth(const TaskTerms& terms) {
  int64_t sum = 0;
  for (const TaskTerm& term : terms)
    sum += capped_product(kFunctions[term.function].growth, term.of.empty() ? 1 : growth(term.of));
  return sum;
}

std::string function_names() {
  std::string names;
  for (const Function& function : kFunctions) names += concat(names.empty() ? "" : ", ", function.name);
  return names;
}

}  // namespace heed::data::detail
