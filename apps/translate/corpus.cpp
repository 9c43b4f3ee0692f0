#include "apps/translate/corpus.h"

#include <utility>

#include <heed/data/text/gettext.h>

#include "apps/common/text.h"
#include "apps/translate/pronunciations.h"

namespace heed::apps {

data::TextPairs read_pairs(const std::filesystem::path& file, const DataSettings& s) {
  if (data::is_gettext_name(file.string())) return data::read_gettext_pairs(file.string());
  if (s.format == PairFormat::cmudict) return read_pronunciations(file.string(), s.stress);
  return data::read_text_pairs(file.string(), {.quoted = s.quoted});
}

Corpus read_corpus(const DataSettings& s) {
  Corpus corpus;
  data::TextPairs pairs = s.data.empty()
                              ? data::read_parallel_texts(s.source_lines.string(), s.target_lines.string())
                              : read_pairs(s.data, s);
  corpus.counts = data::filter(pairs, {.duplicates = !s.keep_duplicates,
                                       .equal = s.drop_equal,
                                       .max_length = s.max_length,
                                       .max_ratio = s.max_ratio});
  corpus.splits =
      data::split_by_source(pairs, s.valid.empty() ? s.valid_share : 0, s.test.empty() ? s.test_share : 0);
  const auto take = [&](const std::filesystem::path& file, data::TextPairs& part) {
    if (file.empty()) return;
    part = read_pairs(file, s);
    data::filter(part, {.duplicates = false});
  };
  take(s.valid, corpus.splits.valid);
  take(s.test, corpus.splits.test);
  HEED_CHECK(corpus.splits.train.size() > 0, DataError, "no pair is left to train on: ", describe(corpus));
  return corpus;
}

std::string describe(const Corpus& corpus) {
  std::string text = concat(grouped(corpus.splits.train.size()), " pairs for training, ",
                            grouped(corpus.splits.valid.size()), " for validation, ",
                            grouped(corpus.splits.test.size()), " for the test");
  const data::FilterCounts& c = corpus.counts;
  std::string left_out;
  for (const auto& [count, what] :
       {std::pair(c.empty, "empty"), std::pair(c.equal, "equal"), std::pair(c.length, "too long"),
        std::pair(c.ratio, "of unlike lengths"), std::pair(c.duplicates, "duplicate")})
    if (count > 0) left_out += concat(left_out.empty() ? "" : ", ", grouped(count), " ", what);
  return left_out.empty() ? text : text + "; left out: " + left_out;
}

Tokenizers train_tokenizers(const VocabularySettings& s, const data::TextPairs& train) {
  if (!s.separate_vocabularies) {
    const auto both = data::train_tokenizer(s.source_options(), {train.sources, train.targets});
    return {both, both};
  }
  return {data::train_tokenizer(s.source_options(), {train.sources}),
          data::train_tokenizer(s.target_options(), {train.targets})};
}

}  // namespace heed::apps
