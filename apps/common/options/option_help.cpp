// What --help prints: usage, then the options under their headings in two columns.
#include <algorithm>

#include <fmt/format.h>

#include "apps/common/options/option_reading.h"
#include "apps/common/text.h"

namespace heed::apps {

namespace {

constexpr size_t kHelpColumn = 30;
constexpr size_t kHelpWidth = 100;

size_t width_of(std::string_view text) { return static_cast<size_t>(text_columns(text)); }

std::string show(const OptionValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* text = std::get_if<std::string>(&value)) return printable(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value))
    return fmt::format("{}", fmt::join(*list, ","));
  return std::get<bool>(value) ? "true" : "";
}

// "  left      right", the right column wrapped at spaces.
std::string row(const std::string& left, const std::string& right) {
  std::string out = "  " + left;
  size_t column = 2 + width_of(left);
  if (column + 2 > kHelpColumn) {
    out += '\n';
    column = 0;
  }
  out.append(kHelpColumn - column, ' ');
  column = kHelpColumn;
  for (size_t at = 0; at < right.size();) {
    const size_t end = std::min(right.find(' ', at), right.size());
    const std::string word = right.substr(at, end - at);
    if (column > kHelpColumn && column + 1 + width_of(word) > kHelpWidth) {
      out += '\n' + std::string(kHelpColumn, ' ');
      column = kHelpColumn;
    }
    if (column > kHelpColumn) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width_of(word);
    at = end + 1;
  }
  return out + '\n';
}

std::string left_column(const Option& option) {
  const std::string choices = fmt::format("{}", fmt::join(option.choices, "|"));
  const std::string value = option.value_name.empty() ? choices : option.value_name;
  return "--" + option.name + (option.kind == Option::Kind::flag || value.empty() ? "" : " " + value);
}

std::string right_column(const Option& option) {
  std::string text = option.help;
  if (!option.choices.empty() && !option.value_name.empty()) {
    text += fmt::format("; {}", fmt::join(option.choices, ", "));
  }
  const std::optional<OptionValue> value = option.load();
  const std::string shown = value ? show(*value) : "";
  return shown.empty() ? text : fmt::format("{} [{}]", text, shown);
}

}  // namespace

std::string OptionTable::help(std::string_view summary) const {
  std::string out = fmt::format("{}\n\nUsage: {} [options]{}\n", summary, program_,
                                positionals_ ? fmt::format(" [{} …]", positional_word_) : "");
  if (positionals_) out += "\n" + row(positional_word_, positional_help_);
  std::vector<std::string> groups;
  for (const auto& option : options_) {
    if (std::find(groups.begin(), groups.end(), option->group) == groups.end())
      groups.push_back(option->group);
  }
  for (const std::string& group : groups) {
    out += fmt::format("\n{}\n", group);
    for (const auto& option : options_) {
      if (option->group == group) out += row(left_column(*option), right_column(*option));
    }
  }
  out += "\nSettings and help\n";
  out += row("--config PATH", "read options from a TOML file: lines such as batch-size = 32");
  out += row("--debug", "say more about errors");
  out += row("-h, --help", "print this");
  out +=
      "\nValues in [] are the defaults. Each option can also be set by a variable, --batch-size by\n"
      "HEED_BATCH_SIZE. The command line beats the environment, which beats the file.\n";
  return out;
}

}  // namespace heed::apps
