#include "apps/common/options/command_line.h"

#include <algorithm>

#include <fmt/format.h>

#include <heed/core/base/check.h>
#include <heed/version.h>

#include "apps/common/console.h"
#include "apps/common/text.h"

namespace heed::apps {

OptionTable& CommandLine::command(std::string name, std::string summary, std::function<void()> run) {
  return command(std::move(name), std::move(summary), [run = std::move(run)](OptionTable&) { run(); });
}

OptionTable& CommandLine::command(std::string name, std::string summary,
                                  std::function<void(OptionTable&)> run) {
  const std::string program = name.empty() ? program_ : program_ + " " + name;
  commands_.emplace_back(
      new Command{std::move(name), std::move(summary), std::move(run), OptionTable(program)});
  return commands_.back()->options;
}

CommandLine::Command& CommandLine::choose(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& command : commands_) {
    if (command->name == name) return *command;
    names.push_back(command->name);
  }
  const std::string close = nearest(name, names);
  throw ConfigError(fmt::format("unknown command '{}'{}; the commands are {}", printable(name),
                                close.empty() ? "" : fmt::format(", did you mean {}?", close),
                                fmt::join(names, ", ")));
}

void CommandLine::run(const std::vector<std::string>& arguments, const Environment& environment) {
  HEED_ASSERT(!commands_.empty(), "a program without commands");
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (first == "--version") return write_out(fmt::format("{} (heed {})\n", program_, HEED_VERSION));
  const bool single = commands_.front()->name.empty();
  if (!single && (first.empty() || first == "--help" || first == "-h" || first == "help"))
    return write_out(help());
  HEED_CHECK(single || first[0] != '-', ConfigError, "the command comes first: ", program_, " ",
             commands_.front()->name, " ", printable(first), " …");

  Command& command = single ? *commands_.front() : choose(first);
  std::vector<std::string> rest(arguments.begin() + (single ? 0 : 1), arguments.end());
  command.options.parse(rest, environment);
  if (command.options.help_wanted()) return write_out(command.options.help(command.summary));
  command.run(command.options);
}

std::string CommandLine::help() const {
  std::string out = fmt::format("{}\n\nUsage: {} COMMAND [options]\n\nCommands\n", summary_, program_);
  size_t width = 0;
  for (const auto& command : commands_) width = std::max(width, command->name.size());
  for (const auto& command : commands_) {
    out += fmt::format("  {:<{}}  {}\n", command->name, width, command->summary);
  }
  out += fmt::format(
      "\n'{} COMMAND --help' lists the options of a command; '{} --version' prints the version.\n", program_,
      program_);
  return out;
}

}  // namespace heed::apps
