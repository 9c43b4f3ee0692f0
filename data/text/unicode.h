// UTF-8 text: checking, normal forms, code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

/// The bytes as UTF-8, with U+FFFD in place of each that is not part of it.
std::string well_formed(std::string_view bytes);

/// Code points of well-formed UTF-8.
int64_t count_code_points(std::string_view text);

/// What a code point is to a tokenizer of words.
enum class CharacterClass { space, word, other };
/// word: letters, marks and numbers.
CharacterClass character_class(int32_t code_point);

/// Calls f(code point, its bytes as a string_view) for each code point of well-formed UTF-8.
template <class F>
void for_each_code_point(std::string_view text, F&& f);

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
