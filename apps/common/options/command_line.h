// The commands of a program, each with its table of options.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/options/options.h"

namespace heed::apps {

/// A program made of commands: `copy_reverse train --epochs 5`. One whose only command has the empty name
/// takes its options at once: `probe --size 8`.
class CommandLine {
 public:
  CommandLine(std::string program, std::string summary)
      : program_(std::move(program)), summary_(std::move(summary)) {}

  /// Adds a command; run is called when it is chosen, after the options declared in the table returned here
  /// have been stored. It may take the table.
  OptionTable& command(std::string name, std::string summary, std::function<void(OptionTable&)> run);
  OptionTable& command(std::string name, std::string summary, std::function<void()> run);

  /// Chooses the command by the first argument, parses the rest and runs it. --help, --version and a bare
  /// program print to standard output instead. ConfigError on wrong usage; nothing here ends the process.
  void run(
      const std::vector<std::string>& arguments,
      const Environment& environment = [](const char* name) -> const char* { return std::getenv(name); });

  /// What a bare program and --help print: the commands with their summaries.
  std::string help() const;

 private:
  struct Command {
    std::string name, summary;
    std::function<void(OptionTable&)> run;
    OptionTable options;
  };

  Command& choose(const std::string& name);

  std::string program_, summary_;
  std::vector<std::unique_ptr<Command>> commands_;
};

}  // namespace heed::apps
