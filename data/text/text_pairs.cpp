#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/io/file.h>
#include <heed/core/io/sha256.h>
#include <heed/data/detail/file_text.h>
#include <heed/data/text/text_pairs.h>
#include <heed/data/text/unicode.h>

namespace heed::data {
namespace {

void check_line(std::string_view line, std::string_view file, size_t number, const TextFileOptions& options) {
  HEED_CHECK(std::ssize(line) <= options.max_line_bytes, DataError, file, ":", number, ": a line of ",
             line.size(), " bytes; at most ", options.max_line_bytes, " are taken");
  const size_t nul = line.find('\0');
  HEED_CHECK(nul == std::string_view::npos, DataError, file, ":", number, ":", nul + 1, ": a NUL is no text");
  const std::optional<size_t> invalid = invalid_utf8(line);
  HEED_CHECK(!invalid, DataError, file, ":", number, ":", invalid.value_or(0) + 1,
             ": this byte is not UTF-8");
}

/// Takes one field off `rest`, which stands at its first byte and then at the tab or the end.
std::string take_field(std::string_view& rest, std::string_view line, std::string_view file, size_t number,
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

std::string read(const std::string& path, const TextFileOptions& options) {
  try {
    return read_whole_file(path, static_cast<uint64_t>(options.max_file_bytes));
  } catch (const IoError& error) {
    throw DataError(error.what());
  }
}

bool blank(std::string_view text) {
  bool result = true;
  for_each_code_point(text, [&](int32_t code_point, std::string_view) {
    result = result && character_class(code_point) == CharacterClass::space;
  });
  return result;
}

/// Where a source stands between 0 and 1.
double position_of(const std::string& source) {
  const Sha256::Digest digest = sha256(source.data(), source.size());
  uint64_t word = 0;
  for (size_t i = 0; i < 8; ++i) word = word << 8 | digest[i];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace

void TextPairs::add(std::string source, std::string target) {
  sources.push_back(std::move(source));
  targets.push_back(std::move(target));
}

std::vector<std::string> parse_lines(std::string_view text, std::string_view file,
                                     const TextFileOptions& options) {
  text = detail::file_text(text, file);
  HEED_CHECK(!text.empty(), DataError, file, " is empty");
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    check_line(line, file, lines.size() + 1, options);
    lines.emplace_back(line);
  }
  return lines;
}

TextPairs parse_text_pairs(std::string_view text, std::string_view file, const TextFileOptions& options) {
  TextPairs pairs;
  size_t number = 0;
  for (const std::string& line : parse_lines(text, file, options)) {
    ++number;
    std::string_view rest = line;
    std::string source = take_field(rest, line, file, number, options);
    HEED_CHECK(!rest.empty(), DataError, file, ":", number, ":", line.size() + 1,
               ": expected a tab between source and target");
    rest.remove_prefix(1);
    std::string target = take_field(rest, line, file, number, options);
    HEED_CHECK(rest.empty(), DataError, file, ":", number, ":", line.size() - rest.size() + 1,
               ": a second tab; expected source and target alone");
    pairs.add(std::move(source), std::move(target));
  }
  return pairs;
}

TextPairs read_text_pairs(const std::string& path, const TextFileOptions& options) {
  return parse_text_pairs(read(path, options), path, options);
}

TextPairs read_parallel_texts(const std::string& sources, const std::string& targets,
                              const TextFileOptions& options) {
  TextPairs pairs{parse_lines(read(sources, options), sources, options),
                  parse_lines(read(targets, options), targets, options)};
  HEED_CHECK(pairs.sources.size() == pairs.targets.size(), DataError, sources, " has ", pairs.sources.size(),
             " lines, but ", targets, " has ", pairs.targets.size());
  return pairs;
}

FilterCounts filter(TextPairs& pairs, const TextFilter& options) {
  FilterCounts counts;
  std::unordered_set<std::string> seen;
  const auto reason = [&](const std::string& source, const std::string& target) -> int64_t* {
    if (blank(source) || blank(target)) return &counts.empty;
    if (options.equal && source == target) return &counts.equal;
    const auto [shorter, longer] = std::minmax({count_code_points(source), count_code_points(target)});
    if (options.max_length > 0 && longer > options.max_length) return &counts.length;
    if (options.max_ratio > 0 &&
        static_cast<double>(longer) > options.max_ratio * static_cast<double>(shorter))
      return &counts.ratio;
    if (options.duplicates && !seen.insert(concat(source, '\0', target)).second) return &counts.duplicates;
    return nullptr;
  };
  size_t kept = 0;
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    if (int64_t* const count = reason(pairs.sources[i], pairs.targets[i])) {
      ++*count;
      continue;
    }
    if (kept != i) {
      pairs.sources[kept] = std::move(pairs.sources[i]);
      pairs.targets[kept] = std::move(pairs.targets[i]);
    }
    ++kept;
  }
  pairs.sources.resize(kept);
  pairs.targets.resize(kept);
  counts.kept = static_cast<int64_t>(kept);
  return counts;
}

TextSplits split_by_source(const TextPairs& pairs, double valid_share, double test_share) {
  HEED_CHECK(valid_share >= 0 && test_share >= 0 && valid_share + test_share < 1, ConfigError,
             "the shares of validation and test are ", valid_share, " and ", test_share,
             "; expected none negative, and less than 1 together");
  TextSplits splits;
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    const double position = position_of(pairs.sources[i]);
    TextPairs& part = position < test_share                 ? splits.test
                      : position < test_share + valid_share ? splits.valid
                                                            : splits.train;
    part.add(pairs.sources[i], pairs.targets[i]);
  }
  return splits;
}

}  // namespace heed::data
