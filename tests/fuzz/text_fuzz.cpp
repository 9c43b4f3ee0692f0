// Any bytes as a file of pairs and as a tokenizer: a typed error, or what is written and read back unchanged.
#include <string>
#include <string_view>

#include <heed/core/base/check.h>
#include <heed/data/text/text_pairs.h>
#include <heed/data/text/tokenizer.h>

#include "fuzz.h"

using heed::fuzz::require;

namespace {

void read_pairs(std::string_view text) {
  for (const bool quoted : {false, true}) {
    try {
      heed::data::TextPairs pairs =
          heed::data::parse_text_pairs(text, "input", {.quoted = quoted, .max_line_bytes = 4096});
      require(pairs.size() > 0 && pairs.sources.size() == pairs.targets.size());
      const int64_t all = pairs.size();
      const heed::data::FilterCounts counts =
          heed::data::filter(pairs, {.equal = true, .max_length = 100, .max_ratio = 4});
      require(counts.kept == pairs.size() &&
              counts.empty + counts.equal + counts.length + counts.ratio + counts.duplicates + counts.kept ==
                  all);
      const heed::data::TextSplits splits = heed::data::split_by_source(pairs, 0.25, 0.25);
      require(splits.train.size() + splits.valid.size() + splits.test.size() == pairs.size());
    } catch (const heed::DataError&) {
    }
  }
}

void encode(const heed::data::Tokenizer& tokenizer, std::string_view text) {
  try {
    const heed::data::TokenIds ids = tokenizer.encode(text);
    for (const int64_t id : ids) require(id >= heed::data::kFirstSymbol && id < tokenizer.vocab());
    const std::string again = tokenizer.decode(ids);
    require(!heed::data::invalid_utf8(again));
    const heed::data::TokenizerOptions& o = tokenizer.options();
    const bool lossless = o.kind == heed::data::TokenizerKind::characters ||
                          o.kind == heed::data::TokenizerKind::words ||
                          o.kind == heed::data::TokenizerKind::bytes;
    require(!lossless || again == heed::data::normalize(text, o.normalization, o.lowercase));
  } catch (const heed::DataError&) {
    require(heed::data::invalid_utf8(text).has_value());
  }
}

void read_tokenizer(std::string_view text) {
  try {
    const auto tokenizer = heed::data::parse_tokenizer(text, "input");
    const std::string again = tokenizer->serialize();
    require(heed::data::parse_tokenizer(again, "again")->serialize() == again);
    encode(*tokenizer, text);
    encode(*tokenizer, "a b\xc3\xa9");
  } catch (const heed::CheckpointError&) {
  } catch (const heed::ConfigError&) {  // sub-words in a build without them
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_pairs(text);
  read_tokenizer(text);
  for (const heed::data::TokenizerKind kind :
       {heed::data::TokenizerKind::characters, heed::data::TokenizerKind::words,
        heed::data::TokenizerKind::symbols, heed::data::TokenizerKind::bytes})
    encode(*heed::data::train_tokenizer({.kind = kind, .normalization = heed::data::Normalization::nfkc}, {}),
           text);
  return 0;
}
