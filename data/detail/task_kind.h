// The tasks that have sources of their own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <heed/data/detail/task_draw.h>
#include <heed/data/pair_batch.h>

namespace heed::data::detail {

/// One task, each function of it on its own.
struct TaskKind {
  const char* name;
  const char* vocab_text;  ///< what the least vocabulary holds
  int64_t least_vocab;
  bool numbers;  ///< sources and targets hold numbers of digits, from the first to the last
  int64_t (*longest_source)(int64_t length, int64_t vocab);
  int64_t (*longest_target)(int64_t length);
  int64_t (*sources)(int64_t length, int64_t vocab);  ///< different ones, or numbers in one of two places
  TokenIds (*draw)(int64_t min_length, int64_t max_length, int64_t vocab, TaskDraw& draw);
  TokenIds (*solve)(const TokenIds& source, int64_t vocab);  ///< DataError for what is no source
  std::string (*text)(int64_t symbol);                       ///< "" for a symbol that has no name
};

std::span<const TaskKind> task_kinds();

/// Products of counts, which stop at 2^62.
int64_t capped_product(int64_t a, int64_t b);
int64_t capped_power(int64_t base, int64_t exponent);

}  // namespace heed::data::detail
