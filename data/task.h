// What a model is to learn: synthetic tasks whose answers are known.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/pair_batch.h>

namespace heed::data {

namespace detail {
struct TaskKind;
struct TaskTerm;
class TaskDraw;
}  // namespace detail

/// A rule that gives each source its target.
///
/// Of sources of symbols drawn uniformly from 3 to vocab - 1 (lengths are those of sources):
///   copy, reverse; sort (ascending), unique (each symbol where it comes first); shift (each symbol is the
///   next one, the last the first); copy_reverse, which is copy | reverse
/// They combine: "copy | sort" writes one result after the other, "reverse(unique)" or "sort(copy | shift)"
/// applies a function to a result.
///
/// With sources of their own:
///   add, multiply  two decimal numbers (lengths are their digits) and the sign between them → their sum,
///                  their product. Digit d is symbol 3 + d, + is 13, × is 14; no number begins with 0 but 0.
///   parity         symbols 3 and 4 → 3 if there are as many 4s as make an even number, else 4
///   recall         pairs of a key and a value, then one of the keys (lengths are pairs) → its value
///                  (associative recall; Ba et al. 2016, "Using fast weights"). Keys, which differ, are the
///                  lower half of the symbols, values the upper half.
///   dyck           brackets of (vocab - 3) / 2 kinds, 3 + 2 k opening and 4 + 2 k closing, the beginning of
///                  a well-nested text → what closes those that are open
class Task {
 public:
  /// ConfigError saying where the text is no task, and which there are.
  Task(std::string_view text = "copy_reverse");  // NOLINT: a text is a task
  Task(const char* text) : Task(std::string_view(text)) {}

  /// All there are: "copy, reverse, …, dyck".
  static std::string names();
  /// The text in one spelling: "copy|reverse" and "copy | reverse" are the same.
  const std::string& name() const { return name_; }
  /// The least vocabulary that it needs, and why: "14 (pad, start, end, ten digits and +)".
  int64_t least_vocab() const;
  std::string vocab_text() const;
  /// The longest source and target for the longest length; ConfigError for one that the vocabulary has not
  /// symbols for.
  int64_t longest_source(int64_t length, int64_t vocab) const;
  int64_t longest_target(int64_t length) const;
  /// How many different sources there are, at most 2^62.
  int64_t sources(int64_t min_length, int64_t max_length, int64_t vocab) const;
  /// Whether its sources are numbers, whose digits may also be written from the last to the first.
  bool has_numbers() const;

  /// The target that belongs to a source. DataError if it is no source of the task.
  TokenIds solve(const TokenIds& source, int64_t vocab, bool last_digit_first = false) const;
  /// A source with the length drawn from a range.
  TokenIds draw(int64_t min_length, int64_t max_length, int64_t vocab, bool last_digit_first,
                detail::TaskDraw& draw) const;

  /// A symbol as people write it: "7" and "+" in numbers, "(" among brackets, else its number.
  std::string text(int64_t symbol) const;
  /// Symbols with spaces between them, or without where each is a character: "12+345", "3 17 4".
  std::string text(std::span<const int64_t> symbols) const;
  /// The inverse. DataError naming the text and its first word that is no symbol from 3 to vocab - 1.
  TokenIds symbols(std::string_view text, int64_t vocab) const;

  friend bool operator==(const Task& a, const Task& b) { return a.name_ == b.name_; }

 private:
  TokenIds word_symbols(std::string_view word) const;
  int64_t named_symbol(std::string_view name) const;  // -1: none

  std::string name_;
  const detail::TaskKind* kind_;                                // with sources of its own, or null
  std::shared_ptr<const std::vector<detail::TaskTerm>> terms_;  // of functions on symbols
};

}  // namespace heed::data
