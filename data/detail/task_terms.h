// Tasks made of functions on symbols: "copy | reverse(sort)".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/pair_batch.h>

namespace heed::data::detail {

/// A function of a source, or of what other terms make of it, one after the other.
struct TaskTerm {
  size_t function;  ///< its row in the table
  std::vector<TaskTerm> of;
};

using TaskTerms = std::vector<TaskTerm>;

/// ConfigError for a text that is none.
TaskTerms parse_terms(std::string_view text);
std::string to_text(const TaskTerms& terms);
TokenIds evaluate(const TaskTerms& terms, const TokenIds& source, int64_t vocab);
/// How many times as long as its source a target may be.
int64_t growth(const TaskTerms& terms);
/// "copy, reverse, …"
std::string function_names();

}  // namespace heed::data::detail
