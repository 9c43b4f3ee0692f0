#include "../detail/json_fields.h"

#include <algorithm>
#include <cmath>

namespace heed::data::detail {

JsonFields::JsonFields(const Json& json, std::string place)
    : object_(json.as<JsonObject>()), place_(std::move(place)) {
  if (!object_) malformed("is no object");
  asked_.resize(object_->keys.size());
}

const Json* JsonFields::find(std::string_view key) {
  const auto found = std::find(object_->keys.begin(), object_->keys.end(), key);
  if (found == object_->keys.end()) return nullptr;
  const auto at = static_cast<size_t>(found - object_->keys.begin());
  asked_[at] = true;
  return object_->values[at].is_null() ? nullptr : &object_->values[at];
}

const Json& JsonFields::at(std::string_view key) {
  const Json* const json = find(key);
  if (!json) malformed("has no '", key, "'");
  return *json;
}

std::string JsonFields::text(std::string_view key) {
  const std::string* const text = at(key).as<std::string>();
  if (!text) malformed("has no text as '", key, "'");
  return *text;
}

std::optional<std::string> JsonFields::maybe_text(std::string_view key) {
  return find(key) ? std::optional(text(key)) : std::nullopt;
}

bool JsonFields::flag(std::string_view key, std::optional<bool> standard) {
  const Json* const json = find(key);
  if (!json && standard) return *standard;
  const bool* const flag = json ? json->as<bool>() : nullptr;
  if (!flag) malformed("has neither true nor false as '", key, "'");
  return *flag;
}

int64_t JsonFields::whole(std::string_view key, int64_t most) {
  const std::optional<int64_t> number = whole_number(at(key), most);
  if (!number) malformed("has no whole number from 0 to ", most, " as '", key, "'");
  return *number;
}

const std::vector<Json>& JsonFields::list(std::string_view key) {
  const auto* const list = at(key).as<std::vector<Json>>();
  if (!list) malformed("has no list as '", key, "'");
  return *list;
}

void JsonFields::only(std::string_view key, bool known) {
  if (flag(key, known) != known) unsupported("'", key, "' ", known ? "false" : "true");
}

void JsonFields::only_empty(std::string_view key) {
  const std::string text = maybe_text(key).value_or("");
  if (!text.empty()) unsupported("'", key, "' ", heed::detail::quoted(text));
}

void JsonFields::finish(std::initializer_list<std::string_view> passed_over) {
  for (size_t i = 0; i < asked_.size(); ++i) {
    const bool known =
        asked_[i] || std::find(passed_over.begin(), passed_over.end(), object_->keys[i]) != passed_over.end();
    if (!known) unsupported("the field ", heed::detail::quoted(object_->keys[i]));
  }
}

std::optional<int64_t> whole_number(const Json& json, int64_t most) {
  const double* const number = json.as<double>();
  if (!number || *number < 0 || *number > static_cast<double>(most) || std::floor(*number) != *number)
    return std::nullopt;
  return static_cast<int64_t>(*number);
}

}  // namespace heed::data::detail
