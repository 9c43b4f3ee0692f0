// Pairs from a text file: one a line, `source<TAB>target`, symbols as integers separated by spaces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/pair_dataset.h>

namespace heed::data {

struct TsvOptions {
  int64_t vocab = 0;  // symbols are 3 to vocab - 1; 0: to 2^31 - 1
  int64_t max_line_bytes = 1 << 20;
  int64_t max_file_bytes = int64_t{1} << 34;
};

/// All pairs of a file, in its order. A source has at least one symbol; a target may be empty.
class TsvDataset final : public PairDataset {
 public:
  int64_t size() const override { return static_cast<int64_t>(first_.size() / 2); }
  Pair get(int64_t epoch, int64_t index) const override;
  int64_t vocab() const override { return vocab_; }
  int64_t longest_source() const override { return longest_source_; }
  int64_t longest_target() const override { return longest_target_; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  friend TsvDataset parse_tsv(std::string_view, std::string_view, const TsvOptions&);
  friend TsvDataset read_tsv(const std::string&, const TsvOptions&);

  std::vector<int32_t> symbols_;  // of all sources and targets, in the order of the file
  std::vector<int64_t> first_;    // where source 0, target 0, source 1, … begin in symbols_
  int64_t vocab_ = 0;
  int64_t longest_source_ = 0;
  int64_t longest_target_ = 0;
  std::string fingerprint_;
};

/// Parses the content of a file; `file` stands in messages. Accepts a byte order mark at the start, CR LF
/// line ends, repeated spaces and empty lines at the end. DataError with line and column (in bytes, from 1)
/// for anything else: other characters, a missing or second tab, a symbol outside the vocabulary, an empty
/// file.
TsvDataset parse_tsv(std::string_view text, std::string_view file, const TsvOptions& options = {});

/// Reads and parses a regular file. DataError if it is none or cannot be read; its fingerprint is the hash of
/// its content.
TsvDataset read_tsv(const std::string& path, const TsvOptions& options = {});

}  // namespace heed::data
