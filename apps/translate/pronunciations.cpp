#include "apps/translate/pronunciations.h"

#include <heed/core/base/check.h>
#include <heed/core/io/file.h>

namespace heed::apps {
namespace {

std::string_view take_word(std::string_view& rest) {
  const size_t begin = std::min(rest.find_first_not_of(' '), rest.size());
  rest.remove_prefix(begin);
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(word.size());
  return word;
}

/// "read(2)" → "read".
std::string_view without_number(std::string_view word) {
  const size_t open = word.rfind('(');
  return word.ends_with(')') && open != std::string_view::npos && open > 0 ? word.substr(0, open) : word;
}

}  // namespace

data::TextPairs parse_pronunciations(std::string_view text, std::string_view file, bool stress) {
  data::TextPairs pairs;
  size_t number = 0;
  for (const std::string& line : data::parse_lines(text, file)) {
    ++number;
    if (line.starts_with(";;;")) continue;
    std::string_view rest = std::string_view(line).substr(0, line.find(" #"));
    const std::string_view word = without_number(take_word(rest));
    if (word.empty()) continue;
    std::string phonemes;
    for (std::string_view p = take_word(rest); !p.empty(); p = take_word(rest)) {
      if (!stress && p.back() >= '0' && p.back() <= '9') p.remove_suffix(1);
      if (!phonemes.empty()) phonemes += ' ';
      phonemes += p;
    }
    HEED_CHECK(!phonemes.empty(), DataError, file, ":", number, ": expected a word and its phonemes");
    pairs.add(std::string(word), std::move(phonemes));
  }
  return pairs;
}

data::TextPairs read_pronunciations(const std::string& path, bool stress) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  try {
    return parse_pronunciations(read_whole_file(path, kMaxBytes), path, stress);
  } catch (const IoError& error) {
    throw DataError(error.what());
  }
}

}  // namespace heed::apps
