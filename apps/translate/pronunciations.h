// Pronunciations from the CMU Pronouncing Dictionary's file.
#pragma once

#include <string>
#include <string_view>

#include <heed/data/text/text_pairs.h>

namespace heed::apps {

/// Words and their phonemes: "heed", "HH IY D". Lines are `word PHONEME…`, a word's further pronunciations
/// `word(2) PHONEME…`, and # begins a comment, as does ;;; a line. Without `stress` the digits of vowels
/// (AH0) are left out. DataError with the line, as parse_lines() and for a line without phonemes.
data::TextPairs parse_pronunciations(std::string_view text, std::string_view file, bool stress);

/// The same from a regular file. DataError too if it cannot be read.
data::TextPairs read_pronunciations(const std::string& path, bool stress);

}  // namespace heed::apps
