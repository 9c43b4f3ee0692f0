#include <algorithm>
#include <limits>

#include <heed/core/base/check.h>
#include <heed/data/detail/file_text.h>
#include <heed/data/tsv.h>

namespace heed::data {
namespace {

std::string printable(char c) {
  static constexpr char kDigits[] = "0123456789abcdef";
  if (c > ' ' && c < 0x7f) return std::string("'") + c + "'";
  const auto byte = static_cast<unsigned char>(c);
  return std::string("byte 0x") + kDigits[byte >> 4] + kDigits[byte & 15];
}

/// One line, taken apart symbol by symbol.
class Line {
 public:
  Line(std::string_view text, std::string_view file, int64_t number, int64_t vocab)
      : text_(text), file_(file), number_(number), vocab_(vocab) {}

  bool at_end() const { return at_ == text_.size(); }

  bool accept_tab() {
    if (at_end() || text_[at_] != '\t') return false;
    ++at_;
    return true;
  }

  /// Appends symbols up to a tab or the end of the line.
  void symbols(std::vector<int32_t>& out) {
    while (true) {
      while (!at_end() && text_[at_] == ' ') ++at_;
      if (at_end() || text_[at_] == '\t') return;
      out.push_back(symbol());
    }
  }

  template <class... Parts>
  [[noreturn]] void fail(size_t at, const Parts&... parts) const {
    throw DataError(concat(file_, ":", number_, ":", at + 1, ": ", parts...));
  }

  size_t position() const { return at_; }

 private:
  int32_t symbol() {
    const size_t begin = at_;
    int64_t value = 0;
    while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') {
      value =
          std::min<int64_t>(value * 10 + (text_[at_] - '0'), int64_t{1} << 40);  // enough to be out of range
      ++at_;
    }
    if (!at_end() && text_[at_] != ' ' && text_[at_] != '\t')
      fail(at_, "expected symbols as integers separated by spaces, found ", printable(text_[at_]));
    if (value < kFirstSymbol)
      fail(begin, "symbol ", value, " is reserved (0 pad, 1 start, 2 end); symbols begin at ", kFirstSymbol);
    if (value >= vocab_)
      fail(begin, "symbol ", text_.substr(begin, std::min<size_t>(at_ - begin, 20)),
           " is outside the vocabulary: 3 to ", vocab_ - 1);
    return static_cast<int32_t>(value);
  }

  std::string_view text_;
  std::string_view file_;
  int64_t number_;
  int64_t vocab_;
  size_t at_ = 0;
};

}  // namespace

TsvDataset parse_tsv(std::string_view text, std::string_view file, const TsvOptions& options) {
  constexpr int64_t kMaxSymbols = std::numeric_limits<int32_t>::max();
  HEED_CHECK(options.vocab == 0 || (options.vocab > kFirstSymbol && options.vocab <= kMaxSymbols),
             ConfigError, "vocab is ", options.vocab,
             "; a file of pairs needs at least 4 (pad, start, end and one symbol)");
  text = detail::file_text(text, file);
  HEED_CHECK(!text.empty(), DataError, file, " is empty; expected lines of 'source<TAB>target'");
  TsvDataset set;
  int64_t largest = kFirstSymbol;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view content = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    if (content.ends_with('\r')) content.remove_suffix(1);
    Line line(content, file, number, options.vocab ? options.vocab : kMaxSymbols);
    if (static_cast<int64_t>(content.size()) > options.max_line_bytes)
      line.fail(static_cast<size_t>(options.max_line_bytes), "the line has ", content.size(),
                " bytes, more than the limit of ", options.max_line_bytes);
    const auto begin = static_cast<int64_t>(set.symbols_.size());
    set.first_.push_back(begin);
    line.symbols(set.symbols_);
    const auto middle = static_cast<int64_t>(set.symbols_.size());
    if (!line.accept_tab())
      line.fail(line.position(), "no tab between source and target; expected 'source<TAB>target'");
    if (middle == begin) line.fail(0, "the source is empty");
    set.first_.push_back(middle);
    line.symbols(set.symbols_);
    if (!line.at_end()) line.fail(line.position(), "a second tab; expected 'source<TAB>target'");
    const auto end = static_cast<int64_t>(set.symbols_.size());
    set.longest_source_ = std::max(set.longest_source_, middle - begin);
    set.longest_target_ = std::max(set.longest_target_, end - middle);
    for (int64_t i = begin; i < end; ++i)
      largest = std::max<int64_t>(largest, set.symbols_[static_cast<size_t>(i)]);
  }
  set.vocab_ = options.vocab ? options.vocab : largest + 1;
  return set;
}

Pair TsvDataset::get(int64_t, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "pair ", index, " is not in 0 to ", size() - 1);
  const auto i = static_cast<size_t>(2 * index);
  const auto at = [&](size_t k) {
    return symbols_.begin() + (k < first_.size() ? first_[k] : static_cast<int64_t>(symbols_.size()));
  };
  return {{at(i), at(i + 1)}, {at(i + 1), at(i + 2)}};
}

}  // namespace heed::data
