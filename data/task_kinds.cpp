#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include <heed/core/base/check.h>
#include <heed/data/detail/task_kind.h>

namespace heed::data::detail {
namespace {

constexpr int64_t kMany = int64_t{1} << 62;
constexpr int64_t kPlus = kFirstSymbol + 10, kTimes = kFirstSymbol + 11;

int64_t drawn_length(int64_t least, int64_t most, TaskDraw& draw) {
  return least + draw.below(most - least + 1);
}

int64_t same_length(int64_t length, int64_t) { return length; }
int64_t one(int64_t) { return 1; }

// Numbers
// ------------------------------------------------------------------------------------------------------

bool is_digit(int64_t symbol) { return symbol >= kFirstSymbol && symbol < kFirstSymbol + 10; }

void append_number(TokenIds& source, int64_t digits, TaskDraw& draw) {
  for (int64_t i = 0; i < digits; ++i)
    source.push_back(kFirstSymbol + (i == 0 && digits > 1 ? 1 + draw.below(9) : draw.below(10)));
}

template <int64_t kSign>
TokenIds draw_numbers(int64_t least, int64_t most, int64_t, TaskDraw& draw) {
  TokenIds source;
  append_number(source, drawn_length(least, most, draw), draw);
  source.push_back(kSign);
  append_number(source, drawn_length(least, most, draw), draw);
  return source;
}

// The digits of the two numbers, the last first.
struct Numbers {
  std::vector<int64_t> a, b;
};

Numbers numbers_of(const TokenIds& source, int64_t sign, const char* what) {
  const auto at = std::find(source.begin(), source.end(), sign);
  HEED_CHECK(at != source.begin() && at != source.end() && at + 1 != source.end() &&
                 std::all_of(source.begin(), at, is_digit) && std::all_of(at + 1, source.end(), is_digit),
             DataError, "task ", what, ": a source is digits (3 to 12), the sign (", sign, ") and digits");
  const auto digits = [](auto first, auto last) {
    std::vector<int64_t> result;
    while (last != first) result.push_back(*--last - kFirstSymbol);
    return result;
  };
  return {digits(source.begin(), at), digits(at + 1, source.end())};
}

// Digits of any size, the last first, as a number's symbols.
TokenIds to_number(std::vector<int64_t> digits) {
  int64_t carry = 0;
  for (size_t i = 0; i < digits.size() || carry > 0; ++i) {
    if (i == digits.size()) digits.push_back(0);
    carry += digits[i];
    digits[i] = carry % 10;
    carry /= 10;
  }
  while (digits.size() > 1 && digits.back() == 0) digits.pop_back();
  TokenIds symbols;
  for (size_t i = digits.size(); i-- > 0;) symbols.push_back(kFirstSymbol + digits[i]);
  return symbols;
}

TokenIds add(const TokenIds& source, int64_t) {
  Numbers n = numbers_of(source, kPlus, "add");
  n.a.resize(std::max(n.a.size(), n.b.size()));
  for (size_t i = 0; i < n.b.size(); ++i) n.a[i] += n.b[i];
  return to_number(std::move(n.a));
}

TokenIds multiply(const TokenIds& source, int64_t) {
  const Numbers n = numbers_of(source, kTimes, "multiply");
  std::vector<int64_t> product(n.a.size() + n.b.size());
  for (size_t i = 0; i < n.a.size(); ++i)
    for (size_t j = 0; j < n.b.size(); ++j) product[i + j] += n.a[i] * n.b[j];
  return to_number(std::move(product));
}

int64_t two_numbers(int64_t length, int64_t) { return 2 * length + 1; }

int64_t count_numbers(int64_t length, int64_t) {
  return capped_product(length > 1 ? 9 : 10, capped_power(10, length - 1));
}

std::string number_text(int64_t symbol) {
  if (is_digit(symbol)) return std::to_string(symbol - kFirstSymbol);
  return symbol == kPlus ? "+" : symbol == kTimes ? "×" : "";
}

// Parity
// -------------------------------------------------------------------------------------------------------

TokenIds draw_bits(int64_t least, int64_t most, int64_t, TaskDraw& draw) {
  TokenIds source(static_cast<size_t>(drawn_length(least, most, draw)));
  for (int64_t& bit : source) bit = kFirstSymbol + draw.below(2);
  return source;
}

TokenIds parity(const TokenIds& source, int64_t) {
  int64_t sum = 0;
  for (const int64_t symbol : source) {
    HEED_CHECK(symbol == kFirstSymbol || symbol == kFirstSymbol + 1, DataError, "task parity: ", symbol,
               " is neither 3 nor 4");
    sum += symbol - kFirstSymbol;
  }
  return {kFirstSymbol + sum % 2};
}

std::string bit_text(int64_t symbol) {
  return symbol == kFirstSymbol ? "0" : symbol == kFirstSymbol + 1 ? "1" : "";
}

// Associative recall
// -------------------------------------------------------------------------------------------

int64_t count_keys(int64_t vocab) { return (vocab - kFirstSymbol) / 2; }

int64_t recall_length(int64_t pairs, int64_t vocab) {
  HEED_CHECK(pairs <= count_keys(vocab), ConfigError, "task recall: ", pairs,
             " pairs need as many keys, but vocab ", vocab, " has ", count_keys(vocab),
             ", half of its symbols");
  return 2 * pairs + 1;
}

TokenIds draw_recall(int64_t least, int64_t most, int64_t vocab, TaskDraw& draw) {
  const int64_t pairs = drawn_length(least, most, draw), keys = count_keys(vocab);
  std::vector<int64_t> left(static_cast<size_t>(keys));
  std::iota(left.begin(), left.end(), kFirstSymbol);
  TokenIds source;
  for (int64_t i = 0; i < pairs; ++i) {
    std::swap(left[static_cast<size_t>(i)], left[static_cast<size_t>(i + draw.below(keys - i))]);
    source.push_back(left[static_cast<size_t>(i)]);
    source.push_back(kFirstSymbol + keys + draw.below(vocab - kFirstSymbol - keys));
  }
  source.push_back(left[static_cast<size_t>(draw.below(pairs))]);
  return source;
}

TokenIds recall(const TokenIds& source, int64_t) {
  HEED_CHECK(source.size() % 2 == 1, DataError,
             "task recall: a source is pairs of symbols and one of their keys");
  for (size_t i = 0; i + 1 < source.size(); i += 2)
    if (source[i] == source.back()) return {source[i + 1]};
  throw DataError(concat("task recall: no pair has the key ", source.empty() ? 0 : source.back()));
}

// n keys in any order, a value for each, and which is asked for.
int64_t count_recalls(int64_t pairs, int64_t vocab) {
  const int64_t keys = count_keys(vocab), values = vocab - kFirstSymbol - keys;
  int64_t count = pairs;
  for (int64_t i = 0; i < pairs; ++i)
    count = capped_product(count, capped_product(std::max<int64_t>(keys - i, 0), values));
  return count;
}

// Brackets
// -----------------------------------------------------------------------------------------------------

bool opens(int64_t symbol) { return (symbol - kFirstSymbol) % 2 == 0; }

TokenIds draw_brackets(int64_t least, int64_t most, int64_t vocab, TaskDraw& draw) {
  const int64_t length = drawn_length(least, most, draw), kinds = (vocab - kFirstSymbol) / 2;
  TokenIds source, open;
  while (std::ssize(source) < length) {
    if (open.empty() || draw.below(2) == 0) {
      open.push_back(kFirstSymbol + 2 * draw.below(kinds));
      source.push_back(open.back());
    } else {
      source.push_back(open.back() + 1);
      open.pop_back();
    }
  }
  return source;
}

TokenIds close_brackets(const TokenIds& source, int64_t) {
  TokenIds open;
  for (const int64_t symbol : source) {
    if (opens(symbol)) {
      open.push_back(symbol);
    } else {
      HEED_CHECK(!open.empty() && open.back() + 1 == symbol, DataError, "task dyck: ", symbol,
                 " closes a bracket that is not open");
      open.pop_back();
    }
  }
  std::reverse(open.begin(), open.end());
  for (int64_t& symbol : open) ++symbol;
  return open;
}

// Beginnings of well-nested texts: paths that never fall below 0, each step up in one of so many ways.
int64_t count_brackets(int64_t length, int64_t vocab) {
  const int64_t kinds = (vocab - kFirstSymbol) / 2;
  constexpr int64_t kShort = 64;
  if (length > kShort) return kMany;
  std::vector<int64_t> at(static_cast<size_t>(length) + 2);  // paths by how many are open
  at[0] = 1;
  for (int64_t i = 0; i < length; ++i) {
    std::vector<int64_t> next(at.size());
    for (size_t depth = 0; depth + 1 < at.size(); ++depth) {
      next[depth + 1] = std::min(kMany, next[depth + 1] + capped_product(at[depth], kinds));
      if (depth > 0) next[depth - 1] = std::min(kMany, next[depth - 1] + at[depth]);
    }
    at = std::move(next);
  }
  int64_t total = 0;
  for (const int64_t paths : at) total = std::min(kMany, total + paths);
  return total;
}

std::string bracket_text(int64_t symbol) {
  constexpr std::string_view kBrackets = "()[]{}<>";
  const int64_t at = symbol - kFirstSymbol;
  return at >= 0 && at < std::ssize(kBrackets) ? std::string(1, kBrackets[static_cast<size_t>(at)]) : "";
}

std::string no_text(int64_t) { return ""; }

constexpr std::array<TaskKind, 5> kKinds{{
    {"add", "pad, start, end, ten digits and plus", 14, true, two_numbers, [](int64_t n) { return n + 1; },
     count_numbers, draw_numbers<kPlus>, add, number_text},
    {"multiply", "pad, start, end, ten digits and two signs", 15, true, two_numbers,
     [](int64_t n) { return 2 * n; }, count_numbers, draw_numbers<kTimes>, multiply, number_text},
    {"parity", "pad, start, end and two symbols", 5, false, same_length, one,
     [](int64_t n, int64_t) { return capped_power(2, n); }, draw_bits, parity, bit_text},
    {"recall", "pad, start, end, a key and a value", 5, false, recall_length, one, count_recalls, draw_recall,
     recall, no_text},
    {"dyck", "pad, start, end and a pair of brackets", 5, false, same_length, [](int64_t n) { return n; },
     count_brackets, draw_brackets, close_brackets, bracket_text},
}};

}  // namespace

std::span<const TaskKind> task_kinds() { return kKinds; }

int64_t capped_product(int64_t a, int64_t b) { return b != 0 && a > kMany / b ? kMany : a * b; }

int64_t capped_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent && result < kMany && base > 1; ++i) result = capped_product(result, base);
  return result;
}

}  // namespace heed::data::detail
