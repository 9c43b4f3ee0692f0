// How OptionTable's sources turn what they hold into a checked value; private to the table.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "apps/common/options/options.h"

namespace heed::apps {

/// "HEED_BATCH_SIZE" for "batch-size".
std::string environment_name(std::string_view option);
/// What the option takes: "a whole number from 1 to 8", "one of pre, post".
std::string describe(const Option& option);
/// The text as a value of the option; ConfigError, which begins with where, if it is not one.
OptionValue read_option(const Option& option, const std::string& text, const std::string& where);
/// Range, choice and the option's own test; ConfigError, which begins with where.
void check_option(const Option& option, const OptionValue& value, const std::string& where);
/// The text of a settings file of at most 1 MiB.
std::string read_settings_file(const std::filesystem::path& file);

}  // namespace heed::apps
