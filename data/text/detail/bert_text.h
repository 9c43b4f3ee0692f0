// Texts as BERT takes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heed::data::detail {

struct BertOptions {
  bool clean = true;          // control characters go, each white space is a space
  bool spaces_cjk = true;     // Chinese characters stand between spaces
  bool strip_accents = true;  // letters without their marks, decomposed
  bool lowercase = true;
};

/// Of well-formed UTF-8.
std::string bert_text(std::string_view text, const BertOptions& options);

/// What BERT takes for punctuation: ASCII's, and Unicode's by category.
bool is_bert_punctuation(int32_t code_point);

/// Small letters, one code point after another.
void append_lowercase(int32_t code_point, std::string& text);
/// Whether it is a mark that takes no space (category Mn).
bool is_accent(int32_t code_point);

}  // namespace heed::data::detail
