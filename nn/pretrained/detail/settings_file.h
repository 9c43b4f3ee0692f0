// Settings from JSON files of others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/io/detail/json.h>

namespace heed::nn::detail {

/// The object that `text` is; `file` stands in the messages. CheckpointError if it is none or no strict JSON.
heed::detail::Json parse_json_object(std::string_view text, const std::string& file);

/// The texts of a list of them; none where it is another value.
std::optional<std::vector<std::string>> texts_of(const heed::detail::Json& json);

/// Settings by name. A value of another type or outside its range is a ConfigError that names file and key;
/// null is as good as no value.
class Settings {
 public:
  Settings(heed::detail::Json object, std::string file)
      : object_(std::move(object)), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  bool has(const char* key) const;
  /// From 0 to `most`.
  int64_t integer(const char* key, std::optional<int64_t> standard = {}, int64_t most = 1 << 24) const;
  /// Finite and not negative.
  double number(const char* key, std::optional<double> standard = {}) const;
  bool flag(const char* key, std::optional<bool> standard = {}) const;
  std::string text(const char* key, std::optional<std::string> standard = {}) const;
  /// A list of texts.
  std::vector<std::string> texts(const char* key) const;
  /// An object within; an empty one if there is none.
  Settings inner(const char* key) const;
  bool empty() const;
  /// ConfigError unless the setting is that or not there.
  void expect_flag(const char* key, bool expected) const;

 private:
  const heed::detail::Json* find(const char* key, bool required) const;
  template <class... Parts>
  [[noreturn]] void fail(const char* key, const Parts&... parts) const {
    throw ConfigError(concat("'", file_, "': ", key, ' ', parts...));
  }

  heed::detail::Json object_;
  std::string file_;
};

/// Those of the object in a file of at most `max_bytes`.
Settings read_settings(const std::string& path, uint64_t max_bytes);
/// None where there is no such file.
Settings read_optional_settings(const std::string& path, uint64_t max_bytes);

}  // namespace heed::nn::detail
