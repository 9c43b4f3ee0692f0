#include "detail/text_lines.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/io/file.h>
#include <heed/data/text/unicode.h>

namespace heed::data {
namespace {

constexpr size_t kPartBytes = 1 << 20;

/// A file's parts. IoError.
class FileParts {
 public:
  FileParts(const std::string& path, int64_t max_bytes) : file_(path) {
    HEED_CHECK(file_.size() <= static_cast<uint64_t>(max_bytes), IoError, "cannot read '", path, "': it has ",
               file_.size(), " bytes, more than the limit of ", max_bytes);
  }

  std::string_view next() {
    part_.resize(std::min<uint64_t>(kPartBytes, file_.size() - begin_));
    file_.read_at(begin_, std::as_writable_bytes(std::span(part_)));
    begin_ += part_.size();
    HEED_CHECK(!part_.empty() || !file_.has_grown(), IoError, "cannot read '", file_.path(), "': it had ",
               file_.size(), " bytes when it was opened, and has more now; is it still being written?");
    return part_;
  }

 private:
  InputFile file_;
  uint64_t begin_ = 0;
  std::string part_;
};

template <class F>
auto with_data_errors(F&& f) {
  try {
    return f();
  } catch (const IoError& error) {
    throw DataError(error.what());
  }
}

}  // namespace

namespace detail {

TextLines::TextLines(std::string file, const TextFileOptions& options, Parts more)
    : file_(std::move(file)), options_(options), more_(std::move(more)) {}

TextLines::TextLines(std::string file, const TextFileOptions& options, std::string_view text)
    : TextLines(std::move(file), options, [text]() mutable {
        const std::string_view part = text.substr(0, kPartBytes);
        text.remove_prefix(part.size());
        return part;
      }) {}

TextLines::TextLines(const std::string& path, const TextFileOptions& options)
    : TextLines(path, options, Parts()) {
  with_data_errors([&] {
    const auto parts = std::make_shared<FileParts>(path, options.max_file_bytes);
    more_ = [parts] { return with_data_errors([&] { return parts->next(); }); };
  });
}

// Up to the next newline, taken off the parts; false at the end. Of a line that is too long no more is kept
// than tells so.
bool TextLines::take(std::string& line) {
  line.clear();
  int64_t bytes = 0;
  bool any = false;
  while (true) {
    if (part_.empty()) {
      part_ = more_();
      if (!std::exchange(started_, true)) {
        HEED_CHECK(!part_.starts_with("\xff\xfe") && !part_.starts_with("\xfe\xff"), DataError, file_,
                   ":1:1: this is UTF-16; save the file as UTF-8");
        if (part_.starts_with("\xef\xbb\xbf")) part_.remove_prefix(3);
      }
      if (part_.empty()) break;
    }
    any = true;
    const std::string_view piece = part_.substr(0, part_.find('\n'));
    const bool ended = piece.size() < part_.size();
    part_.remove_prefix(piece.size() + ended);
    bytes += std::ssize(piece);
    if (bytes <= options_.max_line_bytes + 1) line += piece;
    if (ended) break;
  }
  if (line.ends_with('\r') && bytes == std::ssize(line)) {
    line.pop_back();
    --bytes;
  }
  HEED_CHECK(bytes <= options_.max_line_bytes, DataError, file_, ":", number_ + empty_ + 1, ": a line of ",
             bytes, " bytes; at most ", options_.max_line_bytes, " are taken");
  return any;
}

void TextLines::check(std::string_view line) const {
  const size_t nul = line.find('\0');
  HEED_CHECK(nul == std::string_view::npos, DataError, file_, ":", number_, ":", nul + 1,
             ": a NUL is no text");
  const std::optional<size_t> invalid = invalid_utf8(line);
  HEED_CHECK(!invalid, DataError, file_, ":", number_, ":", invalid.value_or(0) + 1,
             ": this byte is not UTF-8");
}

bool TextLines::next(std::string_view& line) {
  if (!held_) {
    while (take(line_) && line_.empty()) ++empty_;
    held_ = !line_.empty();
    HEED_CHECK(held_ || number_ > 0, DataError, file_, " is empty");
    if (!held_) return false;
  }
  ++number_;
  if (empty_ > 0) {
    --empty_;
    line = {};
    return true;
  }
  held_ = false;
  line = line_;
  check(line);
  return true;
}

}  // namespace detail

std::vector<std::string> parse_lines(std::string_view text, std::string_view file,
                                     const TextFileOptions& options) {
  detail::TextLines lines(std::string(file), options, text);
  std::vector<std::string> result;
  for (std::string_view line; lines.next(line);) result.emplace_back(line);
  return result;
}

}  // namespace heed::data
