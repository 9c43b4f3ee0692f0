#include "apps/common/console.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

#include <heed/core/base/check.h>

namespace heed::apps {

void write_all(std::FILE* stream, std::string_view text, std::string_view what) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  const bool done = std::fflush(stream) == 0 && written;
  HEED_CHECK(done, IoError, "cannot write to ", what, ": ", std::strerror(errno));
}

void write_out(std::string_view text) { write_all(stdout, text, "standard output"); }

bool is_terminal(std::FILE* stream) {
  const char* term = std::getenv("TERM");
  return term && *term && std::string_view(term) != "dumb" && ::isatty(::fileno(stream)) == 1;
}

bool has_colors(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(stream) && !(no_color && *no_color);
}

bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    std::string locale(value);
    for (char& c : locale)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

int terminal_width(std::FILE* stream) {
  constexpr int kUsual = 80;
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

}  // namespace heed::apps
