// Choosing names by pattern.
#pragma once

#include <string_view>

namespace heed {

/// Whether `name` fits `pattern`, in which * stands for any run of characters, none included.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace heed
