// Lines of a text that comes in parts.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <heed/data/text/text_pairs.h>

namespace heed::data::detail {

/// Holds one line, and the part that it ends in. Without a byte order mark at the start, without line ends,
/// and without empty lines at the end.
class TextLines {
 public:
  /// Of a text, which outlives it; `file` stands in messages.
  TextLines(std::string file, const TextFileOptions& options, std::string_view text);
  /// Of a regular file. DataError.
  TextLines(const std::string& path, const TextFileOptions& options);

  /// The next line, until the next call; false at the end. DataError as of parse_lines().
  bool next(std::string_view& line);
  /// Of the line that was given last, from 1.
  int64_t number() const { return number_; }
  const std::string& file() const { return file_; }

 private:
  /// `more` gives the next part, which stays until it is asked again; empty at the end.
  using Parts = std::function<std::string_view()>;
  TextLines(std::string file, const TextFileOptions& options, Parts more);

  bool take(std::string& line);
  void check(std::string_view line) const;

  std::string file_;
  TextFileOptions options_;
  Parts more_;
  std::string_view part_;  // what is left of it
  bool started_ = false;   // the first part has been taken
  std::string line_;       // read ahead, if held_,
  bool held_ = false;
  int64_t empty_ = 0;   // with the empty lines before it
  int64_t number_ = 0;  // of lines given
};

}  // namespace heed::data::detail
