// Lines from a stream, one at a time.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

namespace heed::apps {

/// Reads lines without their ends, LF or CR LF. The first may begin with a byte order mark, which is dropped.
class LineReader {
 public:
  /// `name` stands in messages; the stream stays open.
  LineReader(std::FILE* stream, std::string name) : stream_(stream), name_(std::move(name)) {}

  /// False at the end. DataError for a line of more than 1 MiB, IoError where reading fails.
  bool next(std::string& line);

 private:
  std::FILE* stream_;
  std::string name_;
  int64_t number_ = 0;
};

/// Calls f with each line of standard input that is not empty, as it comes. On a terminal `prompt` stands
/// before each. Errors as of LineReader; a signal ends it by throwing Stopped.
void for_each_input_line(const char* prompt, const std::function<void(const std::string&)>& f);

}  // namespace heed::apps
