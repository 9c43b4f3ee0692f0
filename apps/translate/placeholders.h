// Parts of a program's message that a translation must keep.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed::apps {

/// printf's directives (%s, %2$d, %(name)s), {0} and {name}, tags and entities (<b>, &amp;), shell variables
/// ($name, ${name}), and for an accelerator (_File, &File, ~File) its mark. In their order, but what may
/// stand in any order, because it is named or numbered, sorted behind the others.
std::vector<std::string> placeholders(std::string_view text);

}  // namespace heed::apps
