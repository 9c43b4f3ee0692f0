// Pairs of texts from files, what is left out of them, and their parts for training and test.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace heed::data {

/// Pair i is sources[i] and targets[i].
struct TextPairs {
  std::vector<std::string> sources, targets;

  int64_t size() const { return static_cast<int64_t>(sources.size()); }
  void add(std::string source, std::string target);
};

struct TextFileOptions {
  bool quoted = false;  // a field may stand in quotes, "" in it for one
  int64_t max_line_bytes = 1 << 20;
  int64_t max_file_bytes = int64_t{1} << 34;
};

/// The lines of a text file; `file` stands in messages. Accepts a byte order mark at the start, CR LF line
/// ends and empty lines at the end. DataError with line and column (in bytes, from 1) where it is not UTF-8
/// or holds a NUL, for a line too long, and for a file without lines.
std::vector<std::string> parse_lines(std::string_view text, std::string_view file,
                                     const TextFileOptions& options = {});

/// The pairs of lines `source<TAB>target`. DataError as of parse_lines(), and for a missing or second tab.
TextPairs parse_text_pairs(std::string_view text, std::string_view file, const TextFileOptions& options = {});

/// The same from a regular file. DataError too if there is none or it cannot be read.
TextPairs read_text_pairs(const std::string& path, const TextFileOptions& options = {});

/// Pairs from two files, whose lines i belong together. DataError if one has more lines.
TextPairs read_parallel_texts(const std::string& sources, const std::string& targets,
                              const TextFileOptions& options = {});

using PairFunction = std::function<void(std::string source, std::string target)>;

/// Calls f with each pair of a file, of which a line is in memory at a time. Errors as read_text_pairs()'s
/// come where the file has them, after the pairs before.
void for_each_text_pair(const std::string& path, const TextFileOptions& options, const PairFunction& f);

/// The same of two files, as read_parallel_texts() takes them.
void for_each_parallel_text(const std::string& sources, const std::string& targets,
                            const TextFileOptions& options, const PairFunction& f);

/// Which pairs to leave out.
struct TextFilter {
  bool duplicates = true;  // all but the first of equal pairs
  bool equal = false;      // target equal to source
  int64_t max_length = 0;  // code points of the longer side; 0: any number
  double max_ratio = 0;    // the longer side's code points to the shorter's; 0: any
};

/// How many pairs were left out, each for the first reason that holds, in this order.
struct FilterCounts {
  int64_t empty = 0;  // a side that is empty or white space is always left out
  int64_t equal = 0;
  int64_t length = 0;
  int64_t ratio = 0;
  int64_t duplicates = 0;
  int64_t kept = 0;
};

/// Tells of one pair after another whether it is to be kept. Of those it keeps it remembers 16 bytes of a
/// hash, some 40 in all, if duplicates are left out.
class PairFilter {
 public:
  explicit PairFilter(const TextFilter& options);
  /// The sides are in UTF-8.
  bool keeps(std::string_view source, std::string_view target);
  const FilterCounts& counts() const { return counts_; }

 private:
  using Digest = std::array<uint8_t, 16>;
  struct DigestHash {
    size_t operator()(const Digest& digest) const noexcept;
  };
  int64_t FilterCounts::*reason(std::string_view source, std::string_view target);
  bool is_new(std::string_view source, std::string_view target);

  TextFilter options_;
  FilterCounts counts_;
  std::unordered_set<Digest, DigestHash> seen_;
};

/// Leaves pairs out in place; the others keep their order. The sides are in UTF-8.
FilterCounts filter(TextPairs& pairs, const TextFilter& options);

enum class SplitPart { train, valid, test };

/// Where a hash of its source sends a pair: into test and validation about as many of the sources as the
/// shares say. So no source is in two parts, and adding pairs moves none. ConfigError for shares that are
/// negative or together 1 or more.
SplitPart part_of(std::string_view source, double valid_share, double test_share);

struct TextSplits {
  TextPairs train, valid, test;

  TextPairs& part(SplitPart part) {
    return part == SplitPart::train ? train : part == SplitPart::valid ? valid : test;
  }
};

/// All pairs, each in its part_of().
TextSplits split_by_source(const TextPairs& pairs, double valid_share, double test_share);

}  // namespace heed::data
