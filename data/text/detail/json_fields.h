// The fields of objects in a tokenizer.json. None is passed over: what nobody asks for is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/io/detail/json.h>

namespace heed::data::detail {

using heed::detail::Json;
using heed::detail::JsonObject;

class JsonFields {
 public:
  /// `place` names the object in messages: "file: the normalizer". CheckpointError if it is no object.
  JsonFields(const Json& json, std::string place);

  const std::string& place() const { return place_; }
  /// What stands under `key`; null if nothing or JSON's null does.
  const Json* find(std::string_view key);
  const Json& at(std::string_view key);

  std::string text(std::string_view key);
  std::optional<std::string> maybe_text(std::string_view key);
  bool flag(std::string_view key, std::optional<bool> standard = std::nullopt);
  /// A whole number from 0 to `most`.
  int64_t whole(std::string_view key, int64_t most);
  const std::vector<Json>& list(std::string_view key);

  /// ConfigError unless a field is missing, null or the flag that heed knows how to honour.
  void only(std::string_view key, bool flag);
  /// ConfigError unless a text is missing, null or empty.
  void only_empty(std::string_view key);

  /// ConfigError if there are fields that were not asked for. `passed_over` are known to mean nothing here.
  void finish(std::initializer_list<std::string_view> passed_over = {});

  template <class... Parts>
  [[noreturn]] void malformed(const Parts&... parts) const {
    throw CheckpointError(concat(place_, " ", parts...));
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    throw ConfigError(concat(place_, ": ", parts..., " is not supported"));
  }

 private:
  const JsonObject* object_;
  std::string place_;
  std::vector<bool> asked_;
};

/// A whole number from 0 to `most`, if `json` is one.
std::optional<int64_t> whole_number(const Json& json, int64_t most);

}  // namespace heed::data::detail
