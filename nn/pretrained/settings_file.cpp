#include <cmath>
#include <filesystem>

#include <heed/core/io/file.h>
#include <heed/nn/pretrained/detail/settings_file.h>

namespace heed::nn::detail {

using heed::detail::JsonObject;

heed::detail::Json parse_json_object(std::string_view text, const std::string& file) {
  heed::detail::Json json = heed::detail::parse_json(text, file, {"settings", "file"});
  HEED_CHECK(json.as<JsonObject>(), CheckpointError, "'", file, "' is no JSON object");
  return json;
}

std::optional<std::vector<std::string>> texts_of(const heed::detail::Json& json) {
  const auto* const list = json.as<std::vector<heed::detail::Json>>();
  if (!list) return {};
  std::vector<std::string> texts;
  for (const heed::detail::Json& item : *list) {
    const auto* const text = item.as<std::string>();
    if (!text) return {};
    texts.push_back(*text);
  }
  return texts;
}

Settings read_settings(const std::string& path, uint64_t max_bytes) {
  return {parse_json_object(read_whole_file(path, max_bytes), path), path};
}

Settings read_optional_settings(const std::string& path, uint64_t max_bytes) {
  return std::filesystem::exists(path) ? read_settings(path, max_bytes) : Settings({}, path);
}

const heed::detail::Json* Settings::find(const char* key, bool required) const {
  const heed::detail::Json* const found = object_.find(key);
  if (found && !found->is_null()) return found;
  if (required) fail(key, "is missing");
  return nullptr;
}

bool Settings::has(const char* key) const { return find(key, false) != nullptr; }

int64_t Settings::integer(const char* key, std::optional<int64_t> standard, int64_t most) const {
  const heed::detail::Json* const value = find(key, !standard);
  if (!value) return *standard;
  const auto* const number = value->as<double>();
  if (!number || std::floor(*number) != *number) fail(key, "is no whole number");
  if (*number < 0 || *number > static_cast<double>(most))
    fail(key, "is ", fixed_text(*number, 0), "; expected 0 to ", most);
  return static_cast<int64_t>(*number);
}

double Settings::number(const char* key, std::optional<double> standard) const {
  const heed::detail::Json* const value = find(key, !standard);
  if (!value) return *standard;
  const auto* const number = value->as<double>();
  if (!number) fail(key, "is no number");
  if (!std::isfinite(*number) || *number < 0) fail(key, "is ", *number, "; expected a number from 0 on");
  return *number;
}

bool Settings::flag(const char* key, std::optional<bool> standard) const {
  const heed::detail::Json* const value = find(key, !standard);
  if (!value) return *standard;
  const bool* const flag = value->as<bool>();
  if (!flag) fail(key, "is neither true nor false");
  return *flag;
}

std::string Settings::text(const char* key, std::optional<std::string> standard) const {
  const heed::detail::Json* const value = find(key, !standard);
  if (!value) return *standard;
  const auto* const text = value->as<std::string>();
  if (!text) fail(key, "is no text");
  return *text;
}

std::vector<std::string> Settings::texts(const char* key) const {
  const auto texts = texts_of(*find(key, true));
  if (!texts) fail(key, "is no list of texts");
  return *texts;
}

bool Settings::empty() const {
  const auto* const object = object_.as<JsonObject>();
  return !object || object->keys.empty();
}

Settings Settings::inner(const char* key) const {
  const heed::detail::Json* const value = find(key, false);
  if (value && !value->as<JsonObject>()) fail(key, "is no object");
  return {value ? *value : heed::detail::Json(), concat(file_, "': '", key)};
}

void Settings::expect_flag(const char* key, bool expected) const {
  if (flag(key, expected) != expected)
    fail(key, "is ", expected ? "false" : "true", "; heed has no such model");
}

}  // namespace heed::nn::detail
