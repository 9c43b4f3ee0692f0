// One table of options that feeds the command line, the environment and a TOML file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heed/core/base/check.h>

#include "apps/common/options/option_values.h"

namespace heed::apps {

/// Where the value in force came from; a later one wins.
enum class ValueSource { default_value, file, environment, command_line };

/// Looks up an environment variable; null where it is not set.
using Environment = std::function<const char*(const char* name)>;

/// One row of an OptionTable: the way in and out of a variable of the program.
struct Option {
  enum class Kind { flag, integer, number, text, list };

  std::string name;  ///< as on the command line, without the dashes: "batch-size"
  std::string group;
  std::string help;
  std::string value_name;  ///< "N", "X", "PATH": how the help calls the value
  Kind kind = Kind::text;
  IntegerRange integers;
  NumberRange numbers;
  std::vector<std::string> choices;  ///< of a text; empty: any
  bool saved = true;                 ///< written by dump_toml and dump_json
  ValueSource source = ValueSource::default_value;

  std::function<void(const OptionValue&)> store;
  std::function<std::optional<OptionValue>()> load;  ///< nothing where the variable is unset
  std::function<void(const std::string&)> check;     ///< throws ConfigError for a text that it refuses
  std::function<void()> hook;                        ///< see before_others()

  /// How the help calls the value.
  Option& called(std::string word) { return value_name = std::move(word), *this; }
  /// A setting of this run rather than of the model: not written to files.
  Option& not_saved() { return saved = false, *this; }
  /// A further test of a text; it throws ConfigError saying what is wrong, without the option's name.
  Option& checked(std::function<void(const std::string&)> test) { return check = std::move(test), *this; }
  /// Stored before the other options, then f runs, which may change their defaults: for presets.
  Option& before_others(std::function<void()> f) { return hook = std::move(f), *this; }
};

/// Options bound to variables. The value that a variable has when it is declared is its default; a
/// std::optional starts unset. The option "batch-size" is --batch-size N or --batch-size=N on the command
/// line, HEED_BATCH_SIZE in the environment (empty counts as not set) and batch-size in a file.
/// Bad input throws ConfigError naming the option, the text, what was expected and, in files, line:column.
class OptionTable {
 public:
  /// program as the user types it, "copy_reverse train"; used by the hints of errors and by help().
  explicit OptionTable(std::string program = "heed") : program_(std::move(program)) {}
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  /// The heading that the options declared from now on stand under.
  void group(std::string title) { group_ = std::move(title); }

  Option& flag(std::string name, bool& value, std::string help);
  Option& integer(std::string name, int64_t& value, std::string help, IntegerRange range = {});
  Option& integer(std::string name, std::optional<int64_t>& value, std::string help, IntegerRange range = {});
  Option& number(std::string name, double& value, std::string help, NumberRange range = {});
  Option& number(std::string name, std::optional<double>& value, std::string help, NumberRange range = {});
  Option& text(std::string name, std::string& value, std::string help);
  Option& path(std::string name, std::filesystem::path& value, std::string help);
  /// Separated by commas on the command line and in the environment; in a file an array, or one text.
  Option& list(std::string name, std::vector<std::string>& value, std::string help);
  Option& choice(std::string name, std::string& value, std::string help, std::vector<std::string> choices);
  /// The same for an enum: the words and what they stand for.
  template <class E>
  Option& choice(std::string name, E& value, std::string help, std::vector<std::pair<std::string, E>> words);
  /// What may stand on the command line without a flag; by default nothing may.
  void positionals(std::string word, std::vector<std::string>& values, std::string help);

  /// Reads the command line (without the program's and the command's name), the environment and the file that
  /// --config or HEED_CONFIG names, and stores what they say. Nothing is stored where anything is wrong.
  /// --help stores nothing and makes help_wanted() true.
  void parse(const std::vector<std::string>& arguments, const Environment& environment);
  bool help_wanted() const { return help_wanted_; }

  /// Reads settings written by dump_toml() or by hand and stores them, as a weaker source than any used so
  /// far. DataError where the file cannot be read; ConfigError where it is not right.
  void read_file(const std::filesystem::path& file);
  /// The same for the text of a file; name is what errors call it.
  void read_toml(std::string_view text, const std::string& name);

  /// Whether the option was set by anything but its default.
  bool given(std::string_view name) const { return source(name) != ValueSource::default_value; }
  ValueSource source(std::string_view name) const;

  /// All saved options with their values in force, as TOML that read_file() reads back exactly.
  std::string dump_toml() const;
  /// The same as one JSON object.
  std::string dump_json() const;
  /// What --help prints.
  std::string help(std::string_view summary) const;

  const std::vector<std::unique_ptr<Option>>& options() const { return options_; }

 private:
  struct Setting {
    Option* option;
    OptionValue value;
    ValueSource source;
  };
  using Settings = std::vector<Setting>;

  Option& add(std::string name, std::string help, Option::Kind kind, std::string value_name);
  Option* find(std::string_view name) const;
  std::string suggestion(std::string_view name, std::string_view prefix) const;
  Settings from_arguments(const std::vector<std::string>& arguments, std::vector<std::string>& positionals,
                          std::string& config);
  Settings from_environment(const Environment& environment, std::string& config);
  Settings from_toml(std::string_view text, const std::string& name);
  void apply(Settings settings);

  std::string program_;
  std::string group_ = "Options";
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::string>* positionals_ = nullptr;
  std::string positional_word_, positional_help_;
  bool help_wanted_ = false;
};

template <class E>
Option& OptionTable::choice(std::string name, E& value, std::string help,
                            std::vector<std::pair<std::string, E>> words) {
  Option& option = add(std::move(name), std::move(help), Option::Kind::text, "");
  for (const auto& word : words) option.choices.push_back(word.first);
  option.load = [&value, words]() -> std::optional<OptionValue> {
    for (const auto& word : words) {
      if (word.second == value) return OptionValue(word.first);
    }
    return std::nullopt;
  };
  option.store = [&value, words](const OptionValue& text) {
    for (const auto& word : words) {
      if (word.first == std::get<std::string>(text)) value = word.second;
    }
  };
  HEED_ASSERT(option.load(), "the default of --", option.name, " is not one of its words");
  return option;
}

}  // namespace heed::apps
