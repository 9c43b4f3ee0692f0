// JSON from files of others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <heed/core/base/check.h>

namespace heed::nn::detail {

/// An object that keeps its keys in the order in which they were set.
using Json = nlohmann::ordered_json;

/// The object that `text` is, nested no deeper than a configuration ever is. `file` stands in the messages.
/// CheckpointError if it is none, is not well-formed, or has a key twice.
Json parse_json_object(std::string_view text, const std::string& file);
/// The object in a file of at most `max_bytes`.
Json read_json_object(const std::string& path, uint64_t max_bytes);

class Settings;
/// Those of a file; none where there is no such file.
Settings read_optional_settings(const std::string& path, uint64_t max_bytes);

/// Settings by name. A value of another type or outside its range is a ConfigError that names file and key;
/// null is as good as no value.
class Settings {
 public:
  Settings(Json object, std::string file) : object_(std::move(object)), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  bool has(const char* key) const;
  /// From 0 to `most`.
  int64_t integer(const char* key, std::optional<int64_t> standard = {}, int64_t most = 1 << 24) const;
  /// Finite and not negative.
  double number(const char* key, std::optional<double> standard = {}) const;
  bool flag(const char* key, std::optional<bool> standard = {}) const;
  std::string text(const char* key, std::optional<std::string> standard = {}) const;
  /// An object within; an empty one if there is none.
  Settings inner(const char* key) const;
  /// ConfigError unless the setting is that or not there.
  void expect_flag(const char* key, bool expected) const;

 private:
  const Json* find(const char* key, bool required) const;
  template <class... Parts>
  [[noreturn]] void fail(const char* key, const Parts&... parts) const {
    throw ConfigError(concat("'", file_, "': ", key, ' ', parts...));
  }

  Json object_;
  std::string file_;
};

}  // namespace heed::nn::detail
