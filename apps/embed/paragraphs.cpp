#include "apps/embed/paragraphs.h"

#include <algorithm>

namespace heed::apps {
namespace {

constexpr size_t kLongest = 1200, kHeading = 80;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

// The words of a line with single spaces.
std::string words_of(std::string_view line) {
  std::string words;
  for (const char c : line) {
    if (!is_space(c))
      words += c;
    else if (!words.empty() && words.back() != ' ')
      words += ' ';
  }
  while (!words.empty() && words.back() == ' ') words.pop_back();
  return words;
}

bool is_heading(const Paragraph& p) {
  return p.text.size() <= kHeading && p.text.find_last_of(".!?:;,") != p.text.size() - 1;
}

class Splitter {
 public:
  void line(int64_t number, std::string words) {
    while (words.size() > kLongest) {  // a line that is a paragraph, or several
      size_t cut = words.rfind(' ', kLongest);
      if (cut == std::string::npos || cut == 0) {
        cut = kLongest;
        while (cut > 1 && (static_cast<unsigned char>(words[cut]) & 0xc0) == 0x80)
          --cut;  // between characters
      }
      add(number, words.substr(0, cut));
      end();
      words.erase(0, cut + (words[cut] == ' '));
    }
    if (!words.empty()) add(number, words);
  }

  // A paragraph ends here, unless it is a heading.
  void blank() {
    if (!is_heading(current_)) end();
  }

  std::vector<Paragraph> finish() {
    end();
    return std::move(result_);
  }

 private:
  void add(int64_t number, const std::string& words) {
    if (current_.text.size() + words.size() > kLongest) end();
    if (current_.text.empty()) current_.first_line = number;
    current_.last_line = number;
    current_.text += (current_.text.empty() ? "" : " ") + words;
  }

  void end() {
    if (!current_.text.empty()) result_.push_back(std::move(current_));
    current_ = {};
  }

  Paragraph current_;
  std::vector<Paragraph> result_;
};

}  // namespace

std::vector<Paragraph> split_paragraphs(std::string_view text) {
  Splitter splitter;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    ++number;
    const std::string words = words_of(text.substr(at, end - at));
    if (words.empty())
      splitter.blank();
    else
      splitter.line(number, words);
    at = end + 1;
  }
  return splitter.finish();
}

}  // namespace heed::apps
