// UTF-8 text: checking, normal forms, code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/base/utf8.h>

namespace heed::data {

using heed::invalid_utf8;

/// Unicode's normal forms (UAX 15): nfc composes letters and their accents; nfkc also replaces compatibility
/// characters, such as ligatures and full-width letters, by plain ones.
enum class Normalization { none, nfc, nfkc };

const char* name(Normalization form);
/// The inverse of name(); ConfigError listing the forms otherwise.
Normalization parse_normalization(std::string_view text);

/// The text in a normal form, with small letters where `lowercase`. DataError with the byte's position where
/// it is not UTF-8.
std::string normalize(std::string_view text, Normalization form, bool lowercase = false);

/// The bytes as UTF-8, with one U+FFFD in place of each that is not part of it, or of what stands there of a
/// character that breaks off.
std::string well_formed(std::string_view bytes);

/// Bytes that come piece by piece as whole characters: well_formed() of all of them together, each character
/// as soon as its last byte is there.
class CharacterAssembler {
 public:
  /// Appends to `text` what the bytes complete.
  void push(std::string_view bytes, std::string& text);
  /// Appends U+FFFD if a character breaks off, and begins anew.
  void finish(std::string& text);

 private:
  std::string pending_;  // the beginning of a character, at most three bytes
};

/// Code points of well-formed UTF-8.
int64_t count_code_points(std::string_view text);

/// What a code point is to a tokenizer of words.
enum class CharacterClass { space, word, other };
/// word: letters, marks and numbers.
CharacterClass character_class(int32_t code_point);

/// Calls f(code point, its bytes as a string_view) for each code point of well-formed UTF-8.
template <class F>
void for_each_code_point(std::string_view text, F&& f);

namespace detail {
/// Decomposed canonically or by compatibility too, and then composed or not: NFD, NFC, NFKD, NFKC. The text
/// is well-formed.
struct NormalForm {
  bool compatibility = false;
  bool compose = false;
};
std::string normal_form(std::string_view text, NormalForm form, bool lowercase = false);

/// Decomposes a code point canonically, at the end of `points`.
void append_decomposed(int32_t code_point, std::vector<int32_t>& points);
/// Puts marks that follow one another into canonical order, from points[begin] on.
void order_marks(std::vector<int32_t>& points, size_t begin = 0);
void append_utf8(int32_t code_point, std::string& text);
}  // namespace detail

template <class F>
void for_each_code_point(std::string_view text, F&& f) {
  while (!text.empty()) {
    const CodePoint first = first_code_point(text);
    if (first.length == 0) return;
    f(static_cast<int32_t>(first.value), text.substr(0, first.length));
    text.remove_prefix(first.length);
  }
}

}  // namespace heed::data
