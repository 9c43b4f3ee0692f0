#include <heed/core/base/check.h>
#include <heed/core/io/file.h>
#include <heed/core/io/sha256.h>
#include <heed/data/tsv.h>

namespace heed::data {

TsvDataset read_tsv(const std::string& path, const TsvOptions& options) {
  std::string text;
  try {
    text = read_whole_file(path, static_cast<uint64_t>(options.max_file_bytes));
  } catch (const IoError& error) {
    throw DataError(error.what());
  }
  TsvDataset set = parse_tsv(text, path, options);
  set.fingerprint_ = "sha256=" + to_hex(sha256(text.data(), text.size()));
  return set;
}

}  // namespace heed::data
