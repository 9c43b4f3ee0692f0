// Parts of a text that become others.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace heed::data::detail {

/// Puts `to` in place of each `from`, the leftmost first. In one pass, since texts and the pieces of foreign
/// vocabularies may have megabytes.
inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string result;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size())
    result.append(text, done, at - done).append(to);
  if (done == 0) return;
  result.append(text, done);
  text = std::move(result);
}

}  // namespace heed::data::detail
