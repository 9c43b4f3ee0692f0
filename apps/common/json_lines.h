// JSON objects, one a line, to standard output or a file.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace heed::apps {

/// An object that keeps its keys in the order in which they were set.
using Json = nlohmann::ordered_json;

/// The object on one line, without the newline. NaN and infinities are null, ill-formed UTF-8 becomes U+FFFD.
std::string json_line(const Json& object);

/// Writes objects one a line and flushes each, so that a reader sees it at once. IoError where writing fails.
class JsonLines {
 public:
  /// To standard output.
  JsonLines() : stream_(stdout, [](std::FILE*) { return 0; }), name_("standard output") {}
  /// To a file, emptied first or appended to.
  enum class Mode { replace, append };
  JsonLines(const std::filesystem::path& file, Mode mode);

  void write(const Json& object);

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream_;
  std::string name_;
};

}  // namespace heed::apps
