// What the program writes for people: standard output and error, and what the terminal can show.
#pragma once

#include <cstdio>
#include <string_view>

namespace heed::apps {

/// Writes to standard output at once; IoError where nobody can read it any more.
void write_out(std::string_view text);

/// Writes to stream and flushes; IoError naming what it was where that fails.
void write_all(std::FILE* stream, std::string_view text, std::string_view what);

/// Whether the stream is a terminal that understands cursor movement (TERM is set and is not "dumb").
bool is_terminal(std::FILE* stream);

/// Whether to use colours: on a terminal, unless NO_COLOR is set to anything.
bool has_colors(std::FILE* stream);

/// Whether the locale's character set is UTF-8.
bool has_utf8();

/// Columns of the terminal behind stream, 80 where it does not say.
int terminal_width(std::FILE* stream);

}  // namespace heed::apps
