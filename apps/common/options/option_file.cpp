// The file side of OptionTable: TOML in, TOML and JSON out.
#include <cstring>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <heed/core/io/file.h>

#include "apps/common/options/option_reading.h"
#include "apps/common/text.h"

// toml++ asserts, and in optimised builds assumes, what some malformed files break. Here that throws.
namespace heed::apps {
struct TomlAssertion : std::logic_error {
  using std::logic_error::logic_error;
};
[[noreturn]] static void fail_assertion(const char* condition) { throw TomlAssertion(condition); }
}  // namespace heed::apps
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? void() : heed::apps::fail_assertion(#condition))
#include <toml++/toml.h>

namespace heed::apps {

namespace {

constexpr size_t kLargestFile = size_t{1} << 20;
constexpr int kDeepest = 32;

std::string where(const std::string& name, size_t line, size_t column) {
  return fmt::format("{}:{}:{}", printable(name), line, column);
}

// What toml++ has to be kept from: it recurses once per bracket and once per part of a dotted key, and
// outside quotes its tables of letters are undefined for some characters that are not ASCII, which TOML has
// no use for there. Walks the text as TOML's lexer does; past a mistake it may miscount, but toml++ stops at
// that mistake too.
class Precheck {
 public:
  Precheck(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void run() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string(c);
        continue;
      }
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') step();
        continue;
      }
      HEED_CHECK(static_cast<unsigned char>(c) < 0x80, ConfigError, where(name_, line_, column_),
                 ": a character that is not ASCII stands outside quotes");
      if (c == '[' || c == '{') limit(++brackets_);
      if ((c == ']' || c == '}') && brackets_ > 0) --brackets_;
      if (c == '.') limit(++dots_);
      if (std::strchr("=,[]{}\n", c)) dots_ = 0;
      step();
    }
  }

 private:
  void step() {
    column_ = text_[at_] == '\n' ? 1 : column_ + 1;
    line_ += text_[at_] == '\n';
    ++at_;
  }

  void limit(int depth) const {
    HEED_CHECK(depth <= kDeepest, ConfigError, where(name_, line_, column_), ": nested deeper than ",
               kDeepest, " levels");
  }

  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool multiline = text_.substr(at_, 3) == three;
    for (int i = 0; i < (multiline ? 3 : 1); ++i) step();
    while (at_ < text_.size()) {
      if (multiline ? text_.substr(at_, 3) == three : text_[at_] == quote || text_[at_] == '\n') break;
      if (text_[at_] == '\\' && quote == '"' && at_ + 1 < text_.size()) step();
      step();
    }
    // A multi-line string may end in up to two more quotes than its three.
    const int closing = multiline ? 5 : 1;
    for (int i = 0; i < closing && at_ < text_.size() && text_[at_] == quote; ++i) step();
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0, line_ = 1, column_ = 1;
  int brackets_ = 0, dots_ = 0;
};

std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return fmt::format("the string '{}'", printable(**node.as_string()));
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return fmt::format("the number {}", **node.as_floating_point());
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

// The node as the kind of value that the option holds; whole numbers also serve as numbers.
std::optional<OptionValue> read_node(const Option& option, const toml::node& node) {
  switch (option.kind) {
    case Option::Kind::flag:
      if (const auto* flag = node.as_boolean()) return OptionValue(**flag);
      break;
    case Option::Kind::integer:
      if (const auto* integer = node.as_integer()) return OptionValue(**integer);
      break;
    case Option::Kind::number:
      if (const auto* number = node.as_floating_point()) return OptionValue(**number);
      if (const auto* integer = node.as_integer()) return OptionValue(static_cast<double>(**integer));
      break;
    case Option::Kind::text:
      if (const auto* text = node.as_string()) return OptionValue(**text);
      break;
    case Option::Kind::list:
      if (const auto* text = node.as_string()) return OptionValue(std::vector<std::string>{**text});
      if (const auto* array = node.as_array()) {
        std::vector<std::string> items;
        for (const toml::node& item : *array) {
          if (!item.is_string()) return std::nullopt;
          items.push_back(**item.as_string());
        }
        return OptionValue(items);
      }
      break;
  }
  return std::nullopt;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct TomlText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return format_number(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(const std::vector<std::string>& values) const {
    std::string items;
    for (const std::string& value : values) items += (items.empty() ? "" : ", ") + quoted(value);
    return "[" + items + "]";
  }
};

}  // namespace

std::string read_settings_file(const std::filesystem::path& file) {
  const std::string name = printable(file.string());
  std::error_code ignored;
  HEED_CHECK(!std::filesystem::is_directory(file, ignored), ConfigError, name,
             " is a directory: expected a TOML file of settings");
  std::optional<InputFile> input;
  try {
    input.emplace(file.string());
  } catch (const IoError& error) {
    throw ConfigError(error.what());
  }
  HEED_CHECK(input->size() <= kLargestFile, ConfigError, name,
             " is larger than 1 MiB: not a file of settings");
  return read_whole_file(file.string(), kLargestFile);
}

OptionTable::Settings OptionTable::from_toml(std::string_view text, const std::string& name) {
  HEED_CHECK(text.size() <= kLargestFile, ConfigError, printable(name),
             " is larger than 1 MiB: not a file of settings");
  Precheck(text, name).run();
  toml::table table;
  try {
    table = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw ConfigError(fmt::format("{}: {}", where(name, at.line, at.column), printable(error.description())));
  } catch (const TomlAssertion& broken) {
    throw ConfigError(fmt::format("{}: malformed TOML ({})", printable(name), broken.what()));
  }
  Settings settings;
  for (auto&& entry : table) {
    const std::string key(entry.first.str());
    const toml::source_position key_at = entry.first.source().begin;
    const toml::node& node = entry.second;
    Option* option = find(key);
    HEED_CHECK(option, ConfigError, where(name, key_at.line, key_at.column), ": unknown key ", printable(key),
               suggestion(key, ""));
    const toml::source_position at = node.source().begin;
    const std::string here = fmt::format("{}: {}", where(name, at.line, at.column), key);
    const std::optional<OptionValue> value = read_node(*option, node);
    HEED_CHECK(value, ConfigError, here, ": expected ", describe(*option), ", found ", type_name(node));
    check_option(*option, *value, here);
    settings.push_back({option, *value, ValueSource::file});
  }
  return settings;
}

std::string OptionTable::dump_toml() const {
  std::string out, group;
  for (const auto& option : options_) {
    const std::optional<OptionValue> value = option->load();
    if (!option->saved || !value) continue;
    if (option->group != group) {
      group = option->group;
      out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", group);
    }
    const std::string text = std::visit(TomlText(), *value);
    HEED_CHECK(!invalid_utf8(text), ConfigError, "--", option->name, ": '", printable(text),
               "' is not UTF-8 and cannot be saved");
    out += fmt::format("{} = {}\n", option->name, text);
  }
  return out;
}

std::string OptionTable::dump_json() const {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& option : options_) {
    const std::optional<OptionValue> value = option->load();
    if (!option->saved || !value) continue;
    std::visit([&](const auto& v) { object[option->name] = v; }, *value);
  }
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace heed::apps
