// A JSON document as values, for small files from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <heed/core/io/detail/json_scanner.h>

namespace heed::detail {

struct Json;

struct JsonObject {
  std::vector<std::string> keys;  // as they stand in the file, none twice
  std::vector<Json> values;
};

struct Json {
  std::variant<std::nullptr_t, bool, double, std::string, std::vector<Json>, JsonObject> value = nullptr;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
  /// The value if it is a T, else null.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  /// What an object has under `key`; null if it has none or this is no object.
  const Json* find(std::string_view key) const;
};

/// Values inside one another at most.
inline constexpr int kDeepestJson = 32;

/// Values in a document at most: a tokenizer of 200,000 pieces and 400,000 merges has 1.4 million. Each takes
/// up to 88 bytes beside its text, where it may have two in the file.
inline constexpr int64_t kMaxJsonValues = int64_t{1} << 22;

/// The document that `text` is as a whole. CheckpointError that names `file` and the byte where it is not
/// strict JSON, has a key twice in an object, a NUL in a string, too many values, or nests too deep.
Json parse_json(std::string_view text, std::string_view file, JsonSource source);

/// Text as a JSON string, in quotes.
std::string json_string(std::string_view text);

}  // namespace heed::detail
