// Tokens that are looked for in a text before all else, such as <|im_end|>.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed::data::detail {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // a mark, which decoding passes over
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in the text's normal form
};

/// Bytes of a token's content at most.
inline constexpr size_t kLongestAddedToken = 1024;

/// A part of a text.
struct Segment {
  std::string_view text;
  int32_t token = -1;  // the id that it is as a whole, or -1
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Empty contents are never found; of equal ones the first counts.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  /// Cuts a text at its tokens, leftmost first and the longest of those; none of the special ones unless
  /// `special`. Text parts are not empty.
  void split(std::string_view text, bool special, std::vector<Segment>& segments) const;

 private:
  const AddedToken* longest(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // by content
  std::array<bool, 256> begins_{};  // with this byte
};

}  // namespace heed::data::detail
