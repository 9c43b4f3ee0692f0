#include <algorithm>

#include <heed/core/io/detail/json.h>

namespace heed::detail {
namespace {

constexpr size_t kLongestString = size_t{1} << 24;

class Parser {
 public:
  Parser(std::string_view text, std::string_view file, JsonSource source) : scanner_(text, file, 0, source) {}

  Json document() {
    Json json = value(0);
    scanner_.skip_space();
    if (!scanner_.at_end()) scanner_.fail("something follows the document");
    return json;
  }

 private:
  Json value(int depth) {
    if (depth > kDeepestJson) scanner_.fail("values nest more than ", kDeepestJson, " deep");
    if (++values_ > kMaxJsonValues) scanner_.fail("there are more than ", kMaxJsonValues, " values");
    switch (scanner_.peek()) {
      case '{':
        return {object(depth)};
      case '[':
        return {array(depth)};
      case '"':
        return {scanner_.string(kLongestString, {"a string"})};
      case 't':
        scanner_.literal("true");
        return {true};
      case 'f':
        scanner_.literal("false");
        return {false};
      case 'n':
        scanner_.literal("null");
        return {};
      default:
        return {scanner_.number({"a value"})};
    }
  }

  std::vector<Json> array(int depth) {
    std::vector<Json> items;
    scanner_.expect('[', {"before a list"});
    if (scanner_.accept(']')) return items;
    do items.push_back(value(depth + 1));
    while (scanner_.accept(','));
    scanner_.expect(']', {"after a list"});
    return items;
  }

  JsonObject object(int depth) {
    JsonObject object;
    scanner_.expect('{', {"before an object"});
    if (scanner_.accept('}')) return object;
    do {
      object.keys.push_back(scanner_.string(kLongestString, {"a key"}));
      scanner_.expect(':', {"after a key"});
      object.values.push_back(value(depth + 1));
    } while (scanner_.accept(','));
    scanner_.expect('}', {"after an object"});
    std::vector<std::string_view> sorted(object.keys.begin(), object.keys.end());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) scanner_.fail("the key ", quoted(*twice), " stands twice in an object");
    return object;
  }

  JsonScanner scanner_;
  int64_t values_ = 0;
};

}  // namespace

const Json* Json::find(std::string_view key) const {
  const JsonObject* const object = as<JsonObject>();
  if (!object) return nullptr;
  const auto found = std::find(object->keys.begin(), object->keys.end(), key);
  return found == object->keys.end() ? nullptr
                                     : &object->values[static_cast<size_t>(found - object->keys.begin())];
}

Json parse_json(std::string_view text, std::string_view file, JsonSource source) {
  return Parser(text, file, source).document();
}

std::string json_string(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + '"';
}

}  // namespace heed::detail
