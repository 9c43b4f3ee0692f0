// The text of a file.
#pragma once

#include <string_view>

#include <heed/core/base/check.h>

namespace heed::data::detail {

/// Without a byte order mark in front and empty lines at the end. DataError for UTF-16.
inline std::string_view file_text(std::string_view text, std::string_view file) {
  HEED_CHECK(!text.starts_with("\xff\xfe") && !text.starts_with("\xfe\xff"), DataError, file,
             ":1:1: this is UTF-16; save the file as UTF-8");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

}  // namespace heed::data::detail
