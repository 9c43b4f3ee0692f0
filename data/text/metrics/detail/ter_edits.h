// The edits that TER counts. Not installed.
#pragma once

#include <cstdint>
#include <string_view>

namespace heed::data::detail {

/// Moves of runs of words plus insertions, removals and replacements that make `hypothesis` `reference`: few,
/// not the fewest, which is NP-hard to find.
int64_t count_ter_edits(std::u32string_view hypothesis, std::u32string_view reference);

}  // namespace heed::data::detail
