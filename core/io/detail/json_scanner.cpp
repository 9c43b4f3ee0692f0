#include <algorithm>
#include <charconv>
#include <cmath>

#include <heed/core/base/utf8.h>
#include <heed/core/io/detail/json_scanner.h>

namespace heed::detail {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

std::string byte_text(unsigned char byte) {
  static constexpr char kDigits[] = "0123456789abcdef";
  return std::string("0x") + kDigits[byte >> 4] + kDigits[byte & 15];
}

}  // namespace

void append_text(std::string& out, const Place& place) {
  out += place.text;
  if (place.tensor.data() == nullptr) return;
  out += concat(*place.text ? " tensor " : "tensor ", quoted(place.tensor));
}

void JsonScanner::skip_space() {
  while (!at_end() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
}

char JsonScanner::peek() {
  skip_space();
  return at_end() ? '\0' : text_[at_];
}

bool JsonScanner::accept(char c) {
  skip_space();
  if (at_end() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonScanner::expect(char c, const Place& where) {
  if (!accept(c)) fail("expected '", c, "' ", where, ", found ", next_text());
}

std::string JsonScanner::next_text() const {
  if (at_end()) return concat("the end of the ", source_.text);
  const char c = text_[at_];
  return c > ' ' && c < 0x7f ? std::string("'") + c + "'"
                             : "byte " + byte_text(static_cast<unsigned char>(c));
}

std::string JsonScanner::string(size_t max_bytes, const Place& what) {
  skip_space();
  if (at_end() || text_[at_] != '"') fail("expected a string as ", what, ", found ", next_text());
  ++at_;
  std::string out;
  while (true) {
    if (at_end()) fail("the ", source_.text, " ends within ", what);
    if (out.size() > max_bytes) fail(what, " is longer than ", max_bytes, " bytes");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') break;
    if (c == '\\') {
      append_escape(out);
      continue;
    }
    if (c < 0x20) fail(what, " holds the control character ", byte_text(c));
    const size_t length = first_code_point(text_.substr(at_)).length;
    if (length == 0) fail(what, " is not valid UTF-8: byte ", byte_text(c));
    out.append(text_.substr(at_, length));
    at_ += length;
  }
  ++at_;
  if (out.size() > max_bytes) fail(what, " is longer than ", max_bytes, " bytes");
  return out;
}

void JsonScanner::append_escape(std::string& out) {
  ++at_;
  if (at_end()) fail("the ", source_.text, " ends within an escape");
  static constexpr std::string_view kShort = "\"\\/bfnrt";
  static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
  const char kind = text_[at_];
  if (const size_t i = kShort.find(kind); i != std::string_view::npos) {
    out += kMeaning[i];
    ++at_;
    return;
  }
  if (kind != 'u') fail("unknown escape after a backslash: ", next_text());
  uint32_t code = four_hex_digits();
  if (code >= 0xd800 && code < 0xdc00) {
    if (text_.substr(at_, 2) != "\\u") fail("half of a surrogate pair");
    ++at_;
    const uint32_t low = four_hex_digits();
    if (low < 0xdc00 || low >= 0xe000) fail("half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code < 0xe000) {
    fail("half of a surrogate pair");
  }
  if (code == 0) fail("a NUL character in a string");
  append_utf8(out, code);
}

uint32_t JsonScanner::four_hex_digits() {
  ++at_;  // the 'u'
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    if (at_end()) fail("the ", source_.text, " ends within an escape");
    const char c = text_[at_];
    const char lower = static_cast<char>(c | 0x20);
    if (!is_digit(c) && !(lower >= 'a' && lower <= 'f'))
      fail("expected a hexadecimal digit, found ", next_text());
    code = code * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
  }
  return code;
}

uint64_t JsonScanner::whole_number(const Place& what) {
  skip_space();
  if (at_end() || !is_digit(text_[at_])) fail("expected a whole number as ", what, ", found ", next_text());
  if (text_[at_] == '0' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))
    fail("a leading zero in ", what);
  constexpr uint64_t kMax = INT64_MAX;
  uint64_t value = 0;
  while (!at_end() && is_digit(text_[at_])) {
    const auto digit = static_cast<uint64_t>(text_[at_] - '0');
    if (value > (kMax - digit) / 10) fail(what, " is larger than 2^63 - 1");
    value = value * 10 + digit;
    ++at_;
  }
  if (!at_end() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E'))
    fail(what, " is not a whole number: ", next_text(), " follows ", value);
  return value;
}

double JsonScanner::number(const Place& what) {
  skip_space();
  const size_t begin = at_;
  const auto digits = [&] {
    const size_t from = at_;
    while (!at_end() && is_digit(text_[at_])) ++at_;
    if (at_ == from) fail("expected a digit of ", what, ", found ", next_text());
    return at_ - from;
  };
  const auto take = [&](char a, char b) {
    const bool found = !at_end() && (text_[at_] == a || text_[at_] == b);
    at_ += found;
    return found;
  };
  take('-', '-');
  const bool zero = !at_end() && text_[at_] == '0';
  if (digits() > 1 && zero) fail("a leading zero in ", what);
  if (take('.', '.')) digits();
  if (take('e', 'E')) {
    take('+', '-');
    digits();
  }
  double value = 0;
  const auto parsed = std::from_chars(text_.data() + begin, text_.data() + at_, value);
  if (parsed.ec != std::errc() || !std::isfinite(value)) fail(what, " is beyond the numbers of a double");
  return value;
}

void JsonScanner::literal(std::string_view word) {
  skip_space();
  if (!text_.substr(at_).starts_with(word)) fail("expected ", word, ", found ", next_text());
  at_ += word.size();
}

std::string quoted(std::string_view text) {
  size_t shown = std::min<size_t>(text.size(), 80);
  while (shown > 0 && shown < text.size() && (text[shown] & 0xc0) == 0x80) --shown;  // not within a character
  std::string out = "'";
  for (const char c : text.substr(0, shown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += "\\x" + byte_text(byte).substr(2);
    } else {
      out += c;
    }
  }
  return out + (text.size() > shown ? "…'" : "'");
}

}  // namespace heed::detail
