#include "../detail/code_points.h"

#include <algorithm>
#include <utf8proc.h>

namespace heed::data::detail {

CharacterGroup find_group(int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return CharacterGroup::letter;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return CharacterGroup::number;
  const bool separator = category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP;
  return separator || c == 0x85 ? CharacterGroup::space : CharacterGroup::other;
}

bool in_ranges(int32_t c, std::span<const CodePointRange> ranges) {
  const auto range =
      std::partition_point(ranges.begin(), ranges.end(), [c](const CodePointRange& r) { return r.last < c; });
  return range != ranges.end() && c >= range->first;
}

bool is_word_character(int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;
  if (category == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d) return true;
  // Letters in circles and squares, which are symbols by their category.
  return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189);
}

}  // namespace heed::data::detail
