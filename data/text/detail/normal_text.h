// Normal forms as published tokenizers know them.
#pragma once

#include <string>
#include <string_view>

#include <heed/data/text/unicode.h>

namespace heed::data::detail {

/// Of well-formed UTF-8, by Unicode 9: newer characters stay as they are, among them marks where they stand.
std::string normal_text(std::string_view text, NormalForm form);

}  // namespace heed::data::detail
