// A text in parts small enough to have one meaning each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed::apps {

/// Lines of a text, counted from 1.
struct Paragraph {
  int64_t first_line = 0, last_line = 0;
  std::string text;  ///< the lines, with single spaces between words
};

/// What blank lines separate. A line that is short and ends without a full stop, such as a heading, goes with
/// the paragraph after it; one of more than 1,200 characters is cut between lines, and a longer line between
/// words.
std::vector<Paragraph> split_paragraphs(std::string_view text);

}  // namespace heed::apps
