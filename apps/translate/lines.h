// Lines from a stream, one at a time.
#pragma once

#include <cstdio>
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

}  // namespace heed::apps
