#include <utility>

#include <heed/core/base/check.h>
#include <heed/data/text/text_pairs.h>

#include "detail/text_lines.h"

namespace heed::data {
namespace {

/// Takes one field off `rest`, which stands at its first byte and then at the tab or the end.
std::string take_field(std::string_view& rest, std::string_view line, std::string_view file, int64_t number,
                       const TextFileOptions& options) {
  if (!options.quoted || !rest.starts_with('"')) {
    const std::string_view field = rest.substr(0, rest.find('\t'));
    rest.remove_prefix(field.size());
    return std::string(field);
  }
  std::string field;
  for (rest.remove_prefix(1); !rest.empty(); rest.remove_prefix(1)) {
    if (rest.starts_with("\"\"")) {
      rest.remove_prefix(1);
    } else if (rest.front() == '"') {
      rest.remove_prefix(1);
      HEED_CHECK(rest.empty() || rest.front() == '\t', DataError, file, ":", number, ":",
                 line.size() - rest.size() + 1, ": expected a tab after the closing quote");
      return field;
    }
    field += rest.front();
  }
  throw DataError(concat(file, ":", number, ":", line.size() + 1, ": the closing quote is missing"));
}

/// Takes the pairs off lines.
void for_each_pair(detail::TextLines& lines, const TextFileOptions& options, const PairFunction& f) {
  const std::string& file = lines.file();
  for (std::string_view line; lines.next(line);) {
    const int64_t number = lines.number();
    std::string_view rest = line;
    std::string source = take_field(rest, line, file, number, options);
    HEED_CHECK(!rest.empty(), DataError, file, ":", number, ":", line.size() + 1,
               ": expected a tab between source and target");
    rest.remove_prefix(1);
    std::string target = take_field(rest, line, file, number, options);
    HEED_CHECK(rest.empty(), DataError, file, ":", number, ":", line.size() - rest.size() + 1,
               ": a second tab; expected source and target alone");
    f(std::move(source), std::move(target));
  }
}

/// The function that puts pairs to others.
PairFunction adder(TextPairs& pairs) {
  return
      [&pairs](std::string source, std::string target) { pairs.add(std::move(source), std::move(target)); };
}

void for_each_pair(detail::TextLines& sources, detail::TextLines& targets, const PairFunction& f) {
  std::string_view source, target;
  while (true) {
    const bool more = sources.next(source);
    if (more != targets.next(target)) break;
    if (!more) return;
    f(std::string(source), std::string(target));
  }
  while (sources.next(source)) {
  }
  while (targets.next(target)) {
  }
  throw DataError(concat(sources.file(), " has ", sources.number(), " lines, but ", targets.file(), " has ",
                         targets.number()));
}

}  // namespace

void TextPairs::add(std::string source, std::string target) {
  sources.push_back(std::move(source));
  targets.push_back(std::move(target));
}

TextPairs parse_text_pairs(std::string_view text, std::string_view file, const TextFileOptions& options) {
  TextPairs pairs;
  detail::TextLines lines(std::string(file), options, text);
  for_each_pair(lines, options, adder(pairs));
  return pairs;
}

TextPairs read_text_pairs(const std::string& path, const TextFileOptions& options) {
  TextPairs pairs;
  detail::TextLines lines(path, options);
  for_each_pair(lines, options, adder(pairs));
  return pairs;
}

TextPairs read_parallel_texts(const std::string& sources, const std::string& targets,
                              const TextFileOptions& options) {
  TextPairs pairs;
  detail::TextLines source_lines(sources, options), target_lines(targets, options);
  for_each_pair(source_lines, target_lines, adder(pairs));
  return pairs;
}

void for_each_text_pair(const std::string& path, const TextFileOptions& options, const PairFunction& f) {
  detail::TextLines lines(path, options);
  for_each_pair(lines, options, f);
}

void for_each_parallel_text(const std::string& sources, const std::string& targets,
                            const TextFileOptions& options, const PairFunction& f) {
  detail::TextLines source_lines(sources, options), target_lines(targets, options);
  for_each_pair(source_lines, target_lines, f);
}

}  // namespace heed::data
