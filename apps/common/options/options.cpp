#include "apps/common/options/options.h"

#include <algorithm>
#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/common/options/option_reading.h"
#include "apps/common/text.h"

namespace heed::apps {

namespace {

// Binds an option to a variable of type T; a std::optional that holds nothing loads as nothing.
template <class T>
void bind(Option& option, T& value) {
  option.store = [&value](const OptionValue& v) { value = std::get<T>(v); };
  option.load = [&value]() -> std::optional<OptionValue> { return OptionValue(value); };
}

template <class T>
void bind(Option& option, std::optional<T>& value) {
  option.store = [&value](const OptionValue& v) { value = std::get<T>(v); };
  option.load = [&value]() -> std::optional<OptionValue> {
    return value ? std::optional<OptionValue>(OptionValue(*value)) : std::nullopt;
  };
}

}  // namespace

Option& OptionTable::add(std::string name, std::string help, Option::Kind kind, std::string value_name) {
  HEED_ASSERT(!name.empty() && !find(name) && name != "config" && name != "help", "option --", name,
              " is declared twice");
  auto option = std::make_unique<Option>();
  option->name = std::move(name);
  option->group = group_;
  option->help = std::move(help);
  option->kind = kind;
  option->value_name = std::move(value_name);
  options_.push_back(std::move(option));
  return *options_.back();
}

Option& OptionTable::flag(std::string name, bool& value, std::string help) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::flag, "");
  bind(option, value);
  return option;
}

Option& OptionTable::integer(std::string name, int64_t& value, std::string help, IntegerRange range) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::integer, "N");
  bind(option, value);
  option.integers = range;
  return option;
}

Option& OptionTable::integer(std::string name, std::optional<int64_t>& value, std::string help,
                             IntegerRange range) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::integer, "N");
  bind(option, value);
  option.integers = range;
  return option;
}

Option& OptionTable::number(std::string name, double& value, std::string help, NumberRange range) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::number, "X");
  bind(option, value);
  option.numbers = range;
  return option;
}

Option& OptionTable::number(std::string name, std::optional<double>& value, std::string help,
                            NumberRange range) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::number, "X");
  bind(option, value);
  option.numbers = range;
  return option;
}

Option& OptionTable::text(std::string name, std::string& value, std::string help) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::text, "TEXT");
  bind(option, value);
  return option;
}

Option& OptionTable::path(std::string name, std::filesystem::path& value, std::string help) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::text, "PATH");
  option.store = [&value](const OptionValue& v) { value = std::get<std::string>(v); };
  option.load = [&value]() -> std::optional<OptionValue> { return OptionValue(value.string()); };
  return option;
}

Option& OptionTable::list(std::string name, std::vector<std::string>& value, std::string help) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::list, "A,B,…");
  bind(option, value);
  return option;
}

Option& OptionTable::choice(std::string name, std::string& value, std::string help,
                            std::vector<std::string> choices) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::text, "");
  bind(option, value);
  option.choices = std::move(choices);
  HEED_ASSERT(std::find(option.choices.begin(), option.choices.end(), value) != option.choices.end(),
              "the default of --", option.name, " is not one of its words");
  return option;
}

void OptionTable::positionals(std::string word, std::vector<std::string>& values, std::string help) {
  positional_word_ = std::move(word);
  positional_help_ = std::move(help);
  positionals_ = &values;
}

Option* OptionTable::find(std::string_view name) const {
  for (const auto& option : options_) {
    if (option->name == name) return option.get();
  }
  return nullptr;
}

ValueSource OptionTable::source(std::string_view name) const {
  const Option* option = find(name);
  HEED_ASSERT(option, "no option --", name);
  return option->source;
}

std::string OptionTable::suggestion(std::string_view name, std::string_view prefix) const {
  std::vector<std::string> names{"config", "help"};
  if (prefix.empty()) names.clear();  // neither stands in a file
  for (const auto& option : options_) names.push_back(option->name);
  const std::string close = nearest(name, names);
  return close.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, close);
}

void OptionTable::parse(const std::vector<std::string>& arguments, const Environment& environment) {
  std::vector<std::string> positionals;
  std::string config;
  Settings settings = from_environment(environment, config);
  Settings from_line = from_arguments(arguments, positionals, config);
  if (help_wanted_) return;
  if (!config.empty()) {
    Settings from_file = from_toml(read_settings_file(config), config);
    settings.insert(settings.end(), from_file.begin(), from_file.end());
  }
  settings.insert(settings.end(), from_line.begin(), from_line.end());
  apply(std::move(settings));
  if (positionals_) *positionals_ = std::move(positionals);
}

void OptionTable::read_file(const std::filesystem::path& file) {
  read_toml(read_settings_file(file), file.string());
}

void OptionTable::read_toml(std::string_view text, const std::string& name) { apply(from_toml(text, name)); }

void OptionTable::apply(Settings settings) {
  std::stable_sort(settings.begin(), settings.end(),
                   [](const Setting& a, const Setting& b) { return a.source < b.source; });
  std::erase_if(settings, [](const Setting& s) { return s.source <= s.option->source; });
  const auto store = [](const Setting& s) {
    s.option->store(s.value);
    s.option->source = s.source;
  };
  for (const auto& option : options_) {
    if (!option->hook) continue;
    bool stored = false;
    for (const Setting& s : settings) {
      if (s.option != option.get()) continue;
      store(s);
      stored = true;
    }
    if (!stored) continue;
    // The hook changes defaults; what stronger sources gave before must outlive it.
    std::vector<std::pair<Option*, OptionValue>> kept;
    for (const auto& other : options_) {
      if (other->source != ValueSource::default_value) kept.emplace_back(other.get(), *other->load());
    }
    option->hook();
    for (const auto& [other, value] : kept) other->store(value);
  }
  for (const Setting& s : settings) {
    if (!s.option->hook) store(s);
  }
}

namespace {

// CLI11 cuts the line into flags, values and the rest; every value stays a text until it is read strictly.
struct ParsedLine {
  std::map<std::string, std::vector<std::string>> values;
  std::vector<std::string> rest;
  bool help = false;
};

ParsedLine cut_line(const std::vector<std::string>& arguments,
                    const std::vector<std::pair<std::string, bool>>& names) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  ParsedLine line;
  app.add_flag("-h,--help", line.help);
  std::map<std::string, CLI::Option*> declared;
  std::map<std::string, std::vector<std::string>> unused;
  for (const auto& name : names) {
    CLI::Option* option =
        name.second ? app.add_flag("--" + name.first) : app.add_option("--" + name.first, unused[name.first]);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
    declared[name.first] = option;
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();
    throw ConfigError(printable(what.substr(0, what.find(':'))) + ": the value is missing");
  } catch (const CLI::ParseError& error) {
    throw ConfigError(printable(error.what()));
  }
  for (const auto& option : declared) {
    if (!option.second->results().empty()) line.values[option.first] = option.second->results();
  }
  line.rest = app.remaining();
  return line;
}

}  // namespace

OptionTable::Settings OptionTable::from_arguments(const std::vector<std::string>& arguments,
                                                  std::vector<std::string>& positionals,
                                                  std::string& config) {
  std::vector<std::pair<std::string, bool>> names{{"config", false}};
  for (const auto& option : options_) names.emplace_back(option->name, option->kind == Option::Kind::flag);
  ParsedLine line = cut_line(arguments, names);
  help_wanted_ = line.help;
  if (help_wanted_) return {};

  Settings settings;
  for (auto& entry : line.values) {
    const std::string flag = "--" + entry.first;
    std::vector<std::string>& values = entry.second;
    HEED_CHECK(values.size() == 1, ConfigError, flag, " is given ", values.size(),
               " times: it takes one value");
    const std::string& value = values.front();
    HEED_CHECK(!value.starts_with("--") || !find(std::string_view(value).substr(2, value.find('=') - 2)),
               ConfigError, flag, ": the value is missing before ", printable(value));
    if (entry.first == "config") {
      config = value;
      continue;
    }
    Option* option = find(entry.first);
    settings.push_back({option, read_option(*option, value, flag), ValueSource::command_line});
  }

  const std::string see_help = fmt::format(" (see '{} --help')", program_);
  bool only_positionals = false;
  for (std::string& word : line.rest) {
    if (!only_positionals && word == "--") {
      only_positionals = true;
    } else if (!only_positionals && word.size() > 1 && word[0] == '-') {
      const std::string flag = word.substr(0, word.find('='));
      const std::string bare = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
      throw ConfigError(
          fmt::format("unknown option {}{}{}", printable(flag), suggestion(bare, "--"), see_help));
    } else {
      HEED_CHECK(positionals_, ConfigError, "unexpected argument '", printable(word), "'", see_help);
      HEED_CHECK(!invalid_utf8(word), ConfigError, "the argument '", printable(word), "' is not UTF-8");
      positionals.push_back(std::move(word));
    }
  }
  return settings;
}

OptionTable::Settings OptionTable::from_environment(const Environment& environment, std::string& config) {
  Settings settings;
  if (!environment) return settings;
  const auto look_up = [&](const std::string& variable) {
    const char* value = environment(variable.c_str());
    return std::string(value ? value : "");
  };
  config = look_up("HEED_CONFIG");
  for (const auto& option : options_) {
    const std::string variable = environment_name(option->name);
    const std::string value = look_up(variable);
    if (value.empty()) continue;
    settings.push_back({option.get(), read_option(*option, value, variable), ValueSource::environment});
  }
  return settings;
}

std::string environment_name(std::string_view option) {
  std::string name = "HEED_";
  // Not by toupper, which some locales give another letter for i.
  for (const char c : option)
    name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

std::string describe(const Option& option) {
  switch (option.kind) {
    case Option::Kind::flag:
      return "true or false";
    case Option::Kind::integer:
      return describe(option.integers);
    case Option::Kind::number:
      return describe(option.numbers);
    case Option::Kind::list:
      return "a list of texts";
    case Option::Kind::text:
      break;
  }
  return option.choices.empty() ? "a text" : fmt::format("one of {}", fmt::join(option.choices, ", "));
}

void check_option(const Option& option, const OptionValue& value, const std::string& where) {
  const auto refuse = [&](const std::string& text, const std::string& hint = "") {
    throw ConfigError(fmt::format("{}: {} is not {}{}", where, text, describe(option), hint));
  };
  if (const auto* integer = std::get_if<int64_t>(&value); integer && !contains(option.integers, *integer)) {
    refuse(std::to_string(*integer));
  }
  if (const auto* number = std::get_if<double>(&value); number && !contains(option.numbers, *number)) {
    refuse(fmt::format("{}", *number));
  }
  const auto* text = std::get_if<std::string>(&value);
  if (!text) return;
  const auto& choices = option.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), *text) == choices.end()) {
    const std::string close = nearest(*text, choices);
    refuse(fmt::format("'{}'", printable(*text)),
           close.empty() ? "" : fmt::format("; did you mean '{}'?", close));
  }
  if (!option.check) return;
  try {
    option.check(*text);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", where, error.what()));
  }
}

OptionValue read_option(const Option& option, const std::string& text, const std::string& where) {
  const std::optional<size_t> invalid = invalid_utf8(text);
  HEED_CHECK(!invalid, ConfigError, where, ": '", printable(text), "' is not UTF-8 (byte ", *invalid + 1,
             ")");
  std::optional<OptionValue> value;
  switch (option.kind) {
    case Option::Kind::flag:
      value = parse_flag(text);
      break;
    case Option::Kind::integer:
      value = parse_integer(text);
      break;
    case Option::Kind::number:
      value = parse_number(text);
      break;
    case Option::Kind::list:
      value = parse_list(text);
      break;
    case Option::Kind::text:
      value = text;
      break;
  }
  HEED_CHECK(value, ConfigError, where, ": '", printable(text), "' is not ", describe(option));
  check_option(option, *value, where);
  return *value;
}

}  // namespace heed::apps
