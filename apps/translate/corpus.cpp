#include "apps/translate/corpus.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <heed/data/mixed_dataset.h>
#include <heed/data/text/gettext.h>

#include "apps/common/text.h"
#include "apps/translate/pronunciations.h"

namespace heed::apps {

data::TextPairs read_pairs(const std::filesystem::path& file, const DataSettings& s) {
  if (data::is_gettext_name(file.string())) return data::read_gettext_pairs(file.string());
  if (s.format == PairFormat::cmudict) return read_pronunciations(file.string(), s.stress);
  return data::read_text_pairs(file.string(), {.quoted = s.quoted});
}

namespace {

void append(data::TextPairs& to, data::TextPairs from) {
  std::move(from.sources.begin(), from.sources.end(), std::back_inserter(to.sources));
  std::move(from.targets.begin(), from.targets.end(), std::back_inserter(to.targets));
}

/// Puts a file's pairs to those before it.
void add(Corpus& corpus, data::TextPairs pairs, const DataSettings& s) {
  const data::FilterCounts counts = data::filter(pairs, {.duplicates = !s.keep_duplicates,
                                                         .equal = s.drop_equal,
                                                         .max_length = s.max_length,
                                                         .max_ratio = s.max_ratio});
  for (const auto count :
       {&data::FilterCounts::empty, &data::FilterCounts::equal, &data::FilterCounts::length,
        &data::FilterCounts::ratio, &data::FilterCounts::duplicates, &data::FilterCounts::kept})
    corpus.counts.*count += counts.*count;
  data::TextSplits splits =
      data::split_by_source(pairs, s.valid.empty() ? s.valid_share : 0, s.test.empty() ? s.test_share : 0);
  corpus.parts.push_back(splits.train.size());
  append(corpus.splits.train, std::move(splits.train));
  append(corpus.splits.valid, std::move(splits.valid));
  append(corpus.splits.test, std::move(splits.test));
}

}  // namespace

Corpus read_corpus(const DataSettings& s) {
  Corpus corpus;
  if (s.data.empty())
    add(corpus, data::read_parallel_texts(s.source_lines.string(), s.target_lines.string()), s);
  for (const std::string& file : s.data) add(corpus, read_pairs(file, s), s);
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

TrainingPairs encode_training(const Corpus& corpus, const Tokenizers& tokenizers, const Settings& s) {
  TrainingPairs result{nullptr, 0};
  std::vector<std::shared_ptr<const data::PairDataset>> parts;
  auto source = corpus.splits.train.sources.begin(), target = corpus.splits.train.targets.begin();
  for (size_t i = 0; i < corpus.parts.size(); ++i) {
    const data::TextPairs pairs{{source, source + corpus.parts[i]}, {target, target + corpus.parts[i]}};
    source += corpus.parts[i];
    target += corpus.parts[i];
    const auto part =
        std::make_shared<data::TextDataset>(pairs, *tokenizers.source, *tokenizers.target, s.max_tokens);
    HEED_CHECK(part->size() > 0, DataError,
               corpus.parts.size() > 1 ? concat("of ", s.data[i], " ") : std::string(),
               "no pair for training has at most --max-tokens ", s.max_tokens, " on each side");
    result.too_long += part->too_long();
    parts.push_back(part);
  }
  result.pairs =
      parts.size() == 1 ? parts.front() : std::make_shared<data::MixedDataset>(parts, s.mix_temperature);
  return result;
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
