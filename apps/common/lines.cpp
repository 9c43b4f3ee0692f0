#include "apps/common/lines.h"

#include <cerrno>
#include <cstring>
#include <unistd.h>

#include <heed/core/base/check.h>

#include "apps/common/program.h"

namespace heed::apps {

LineReader::LineReader(const std::filesystem::path& file)
    : name_(file.empty() ? "standard input" : file.string()),
      stream_(file.empty() ? stdin : std::fopen(file.c_str(), "rb"),
              [](std::FILE* stream) { return stream == stdin ? 0 : std::fclose(stream); }) {
  HEED_CHECK(stream_, DataError, "cannot open ", name_);
}

bool LineReader::typed() const { return ::isatty(::fileno(stream_.get())) != 0; }

bool LineReader::next(std::string& line) {
  constexpr size_t kMaxBytes = 1 << 20;
  line.clear();
  ++number_;
  int c = EOF;
  while ((c = std::getc(stream_.get())) != EOF && c != '\n') {
    line += static_cast<char>(c);
    HEED_CHECK(line.size() <= kMaxBytes, DataError, name_, ":", number_, ": a line of more than ", kMaxBytes,
               " bytes");
  }
  if (c == EOF && std::ferror(stream_.get())) {
    throw_if_stopped();  // a signal ends a read too
    throw IoError(concat("cannot read ", name_, ": ", std::strerror(errno)));
  }
  if (c == EOF && line.empty()) return false;
  if (line.ends_with('\r')) line.pop_back();
  if (number_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
  return true;
}

void for_each_input_line(const char* prompt, const std::function<void(const std::string&)>& f) {
  LineReader reader;
  const bool typed = reader.typed();
  const auto next = [&](std::string& line) {
    throw_if_stopped();
    if (typed) std::fputs(prompt, stderr);
    return reader.next(line);
  };
  for (std::string line; next(line);)
    if (!line.empty()) f(line);
  if (typed) std::fputs("\n", stderr);
}

}  // namespace heed::apps
