// Any bytes as a file of pairs: a DataError, or pairs that are written and read back unchanged.
#include <string>
#include <string_view>

#include <heed/core/base/check.h>
#include <heed/data/tsv.h>

#include "fuzz.h"

using heed::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const int64_t vocab : {0, 20}) {
    const heed::data::TsvOptions options{.vocab = vocab, .max_line_bytes = 4096};
    try {
      const heed::data::TsvDataset set = heed::data::parse_tsv(text, "input", options);
      require(set.size() > 0);
      std::string again;
      for (int64_t i = 0; i < set.size(); ++i) {
        const heed::data::Pair pair = set.get(0, i);
        require(!pair.source.empty());
        for (const auto* side : {&pair.source, &pair.target}) {
          for (const int64_t symbol : *side) {
            require(symbol >= 3 && symbol < set.vocab());
            again += std::to_string(symbol) + " ";
          }
          again += side == &pair.source ? '\t' : '\n';
        }
      }
      const heed::data::TsvDataset copy = heed::data::parse_tsv(again, "copy", {.vocab = vocab});
      require(copy.size() == set.size() && copy.longest_source() == set.longest_source());
      for (int64_t i = 0; i < set.size(); ++i) require(copy.get(0, i) == set.get(0, i));
    } catch (const heed::DataError&) {
    }
  }
  return 0;
}
