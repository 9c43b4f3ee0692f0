#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include <heed/core/io/file.h>
#include <heed/nn/pretrained/detail/json_file.h>

namespace heed::nn::detail {

Json parse_json_object(std::string_view text, const std::string& file) {
  constexpr int kDeepest = 32;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    HEED_CHECK(depth <= kDeepest, CheckpointError, "'", file, "' is nested more than ", kDeepest, " deep");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key)
      HEED_CHECK(keys.back().insert(value.get_ref<const std::string&>()).second, CheckpointError, "'", file,
                 "' has the key '", value.get_ref<const std::string&>(), "' twice");
    return true;
  };
  try {
    Json object = Json::parse(text, check);
    HEED_CHECK(object.is_object(), CheckpointError, "'", file, "' is no JSON object");
    return object;
  } catch (const Json::exception& error) {
    throw CheckpointError(concat("'", file, "' is no sound JSON: ", error.what()));
  }
}

Json read_json_object(const std::string& path, uint64_t max_bytes) {
  return parse_json_object(read_whole_file(path, max_bytes), path);
}

const Json* Settings::find(const char* key, bool required) const {
  const auto found = object_.find(key);
  if (found != object_.end() && !found->is_null()) return &*found;
  if (required) fail(key, "is missing");
  return nullptr;
}

bool Settings::has(const char* key) const { return find(key, false) != nullptr; }

int64_t Settings::integer(const char* key, std::optional<int64_t> standard, int64_t most) const {
  const Json* const value = find(key, !standard);
  if (!value) return *standard;
  if (!value->is_number_integer()) fail(key, "is no whole number");
  if (value->is_number_unsigned() ? value->get<uint64_t>() > static_cast<uint64_t>(most)
                                  : value->get<int64_t>() < 0)
    fail(key, "is ", value->dump(), "; expected 0 to ", most);
  return value->get<int64_t>();
}

double Settings::number(const char* key, std::optional<double> standard) const {
  const Json* const value = find(key, !standard);
  if (!value) return *standard;
  if (!value->is_number()) fail(key, "is no number");
  const auto number = value->get<double>();
  if (!std::isfinite(number) || number < 0) fail(key, "is ", number, "; expected a number from 0 on");
  return number;
}

bool Settings::flag(const char* key, std::optional<bool> standard) const {
  const Json* const value = find(key, !standard);
  if (!value) return *standard;
  if (!value->is_boolean()) fail(key, "is neither true nor false");
  return value->get<bool>();
}

std::string Settings::text(const char* key, std::optional<std::string> standard) const {
  const Json* const value = find(key, !standard);
  if (!value) return *standard;
  if (!value->is_string()) fail(key, "is no text");
  return value->get<std::string>();
}

Settings Settings::inner(const char* key) const {
  const Json* const value = find(key, false);
  if (value && !value->is_object()) fail(key, "is no object");
  return {value ? *value : Json::object(), concat(file_, "': '", key)};
}

void Settings::expect_flag(const char* key, bool expected) const {
  if (flag(key, expected) != expected)
    fail(key, "is ", expected ? "false" : "true", "; heed has no such model");
}

Settings read_optional_settings(const std::string& path, uint64_t max_bytes) {
  return {std::filesystem::exists(path) ? read_json_object(path, max_bytes) : Json::object(), path};
}

}  // namespace heed::nn::detail
