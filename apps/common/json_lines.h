// JSON objects, one a line, to standard output or a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <heed/core/io/append_file.h>

namespace heed::apps {

/// An object that keeps its keys in the order in which they were set.
using Json = nlohmann::ordered_json;

/// The object on one line, without the newline. NaN and infinities are null, ill-formed UTF-8 becomes U+FFFD.
std::string json_line(const Json& object);

/// The object that a line holds, if it is one object and nothing else, of numbers, texts, flags and nulls:
/// what nests deeper is left out.
std::optional<Json> parse_json_line(std::string_view line);

/// Writes objects one a line, each at once, so that a reader sees it. IoError where writing fails.
class JsonLines {
 public:
  /// To standard output.
  JsonLines() = default;
  /// To a file, which is made or goes on: see AppendFile.
  explicit JsonLines(const std::filesystem::path& file) : file_(file.string()) {}

  void write(const Json& object);

 private:
  std::optional<AppendFile> file_;
};

/// Bytes of a file of lines at most: 300,000 epochs have less. Read, it takes many times its size.
inline constexpr uint64_t kMaxJsonLinesBytes = 64 << 20;

/// The objects of a file's lines for which `keep` holds, in their order; none if there is no file. The file
/// then has these lines alone, without those that are damaged, cut short or not kept: where they end it, it
/// is only shortened, else replaced at once. A process killed meanwhile loses no line that is kept. IoError
/// if it cannot be read or written, is no regular file or has more than kMaxJsonLinesBytes.
std::vector<Json> repair_json_lines(const std::filesystem::path& file,
                                    const std::function<bool(const Json&)>& keep);

}  // namespace heed::apps
