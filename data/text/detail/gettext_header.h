// The entry of a catalogue that describes it.
#pragma once

#include <string_view>

namespace heed::data::detail {

/// DataError where the header names a character set other than UTF-8 and ASCII. "CHARSET", which stands in
/// templates, is none yet.
void check_character_set(std::string_view header, std::string_view file);

}  // namespace heed::data::detail
