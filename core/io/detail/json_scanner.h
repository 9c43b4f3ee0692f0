// Strict JSON taken token by token, so nothing nests and no input can exhaust the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <heed/core/base/check.h>

namespace heed::detail {

/// Where in a header something stands, put into words only if it is needed: "for the shape of", tensor "a".
struct Place {
  const char* text;
  std::string_view tensor = {};
};
void append_text(std::string& out, const Place& place);

/// What messages call a file and the text that is scanned in it.
struct JsonSource {
  const char* file = "safetensors file";
  const char* text = "header";
};

class JsonScanner {
 public:
  /// `file` names the file in messages; `base` is the offset of `text` in it.
  JsonScanner(std::string_view text, std::string_view file, uint64_t base, JsonSource source = {})
      : text_(text), file_(file), base_(base), source_(source) {}

  /// Bytes consumed so far.
  size_t position() const { return at_; }

  void skip_space();
  bool at_end() const { return at_ == text_.size(); }
  /// Skips space and gives the character that comes next without taking it; NUL at the end.
  char peek();
  /// Skips space, then takes `c` if it comes next.
  bool accept(char c);
  /// Skips space and takes `c`; an error naming `where` otherwise.
  void expect(char c, const Place& where);

  /// Skips space and takes a string: valid UTF-8, unescaped, without NUL, at most `max_bytes` long. `what`
  /// says in messages what it is.
  std::string string(size_t max_bytes, const Place& what);

  /// Skips space and takes a number: digits only, without leading zeros, at most 2^63 - 1.
  uint64_t whole_number(const Place& what);
  /// Skips space and takes any number, as the nearest double.
  double number(const Place& what);
  /// Takes `word` (true, false, null) or fails.
  void literal(std::string_view word);

  /// A CheckpointError that ends with the byte of the file which was reached.
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw CheckpointError(concat(source_.file, " '", file_, "': ", parts..., ", at byte ", base_ + at_));
  }

 private:
  void append_escape(std::string& out);
  uint32_t four_hex_digits();
  std::string next_text() const;

  std::string_view text_;
  std::string_view file_;
  uint64_t base_;
  JsonSource source_;
  size_t at_ = 0;
};

/// `text` in single quotes for a message: control characters escaped, cut after 80 bytes.
std::string quoted(std::string_view text);

}  // namespace heed::detail
