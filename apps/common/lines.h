// Lines of a file or of standard input, one at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace heed::apps {

/// Reads lines without their ends, LF or CR LF. The first may begin with a byte order mark, which is dropped.
class LineReader {
 public:
  /// Of standard input where `file` is empty. DataError if it cannot be opened.
  explicit LineReader(const std::filesystem::path& file = {});

  /// Whether a person types the lines.
  bool typed() const;

  /// False at the end. DataError for a line of more than 1 MiB, IoError where reading fails.
  bool next(std::string& line);

 private:
  std::string name_;  // in messages
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream_;
  int64_t number_ = 0;
};

/// Calls f with each line of standard input that is not empty, as it comes. On a terminal `prompt` stands
/// before each. Errors as of LineReader; a signal ends it by throwing Stopped.
void for_each_input_line(const char* prompt, const std::function<void(const std::string&)>& f);

}  // namespace heed::apps
