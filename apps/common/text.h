// UTF-8 text for people: disarming, measuring and shortening.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <heed/core/base/utf8.h>

namespace heed::apps {

/// The text on one line, safe for a terminal: control and ill-formed bytes become \n, \t or \xNN.
std::string printable(std::string_view text);

/// The same on the lines that it has: their ends and tabs stay.
std::string printable_lines(std::string_view text);

/// Calls f with each character of well-formed UTF-8 text, as a string_view.
template <class F>
void for_each_character(std::string_view text, F&& f) {
  while (!text.empty()) {
    const size_t length = first_code_point(text).length;
    f(text.substr(0, length > 0 ? length : 1));
    text.remove_prefix(length > 0 ? length : 1);
  }
}

/// Whether a character takes two columns of a terminal: Chinese, Japanese, Korean and emoji. Judged by the
/// blocks that they lie in.
bool is_wide(std::string_view character);

/// Columns of a terminal that well-formed text takes.
int text_columns(std::string_view text);

/// The printable text, cut to so many columns with … at its end.
std::string shorten(std::string_view text, int columns);

/// The text with spaces added to so many columns, before it or after it.
std::string pad_left(const std::string& text, int columns);
std::string pad_right(const std::string& text, int columns);

}  // namespace heed::apps
