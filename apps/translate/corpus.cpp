#include "apps/translate/corpus.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <heed/data/mixed_dataset.h>
#include <heed/data/text/gettext.h>

#include "apps/common/progress.h"
#include "apps/translate/pronunciations.h"

namespace heed::apps {

data::TextPairs read_pairs(const std::filesystem::path& file, const DataSettings& s) {
  if (data::is_gettext_name(file.string())) return data::read_gettext_pairs(file.string());
  if (s.format == PairFormat::cmudict) return read_pronunciations(file.string(), s.stress);
  return data::read_text_pairs(file.string(), {.quoted = s.quoted});
}

namespace {

constexpr double kQuiet = 1;   // seconds of work that is not told of
constexpr int64_t kShown = 3;  // pairs for training that people are shown
constexpr int64_t kMany = 50'000;

size_t count_files(const DataSettings& s) { return std::max<size_t>(1, s.data.size()); }

void for_each_pair(const DataSettings& s, size_t file, const data::PairFunction& f) {
  data::TextFileOptions options{.quoted = s.quoted};
  if (s.stream) options.max_file_bytes = std::numeric_limits<int64_t>::max();
  if (s.data.empty())
    return data::for_each_parallel_text(s.source_lines.string(), s.target_lines.string(), options, f);
  const std::string& name = s.data[file];
  if (s.format == PairFormat::tsv && !data::is_gettext_name(name))
    return data::for_each_text_pair(name, options, f);
  data::TextPairs pairs = read_pairs(name, s);
  for (size_t i = 0; i < pairs.sources.size(); ++i)
    f(std::move(pairs.sources[i]), std::move(pairs.targets[i]));
}

using KeptFunction = std::function<void(data::SplitPart part, std::string source, std::string target)>;

/// The pairs of a file that are not left out.
data::FilterCounts for_each_kept(const DataSettings& s, size_t file, const KeptFunction& f) {
  data::PairFilter filter({.duplicates = !s.keep_duplicates,
                           .equal = s.drop_equal,
                           .max_length = s.max_length,
                           .max_ratio = s.max_ratio});
  const double valid = s.valid.empty() ? s.valid_share : 0, test = s.test.empty() ? s.test_share : 0;
  for_each_pair(s, file, [&](std::string source, std::string target) {
    if (!filter.keeps(source, target)) return;
    const data::SplitPart part = data::part_of(source, valid, test);
    f(part, std::move(source), std::move(target));
  });
  return filter.counts();
}

void add(data::FilterCounts& to, const data::FilterCounts& counts) {
  for (const auto count :
       {&data::FilterCounts::empty, &data::FilterCounts::equal, &data::FilterCounts::length,
        &data::FilterCounts::ratio, &data::FilterCounts::duplicates, &data::FilterCounts::kept})
    to.*count += counts.*count;
}

}  // namespace

int64_t Corpus::size() const { return std::accumulate(parts.begin(), parts.end(), int64_t{0}); }

Corpus read_corpus(const DataSettings& s) {
  Corpus corpus;
  Progress progress("reading", 0, "pairs");
  progress.hide_below(kQuiet);
  for (size_t file = 0; file < count_files(s); ++file) {
    int64_t& train = corpus.parts.emplace_back(0);
    add(corpus.counts,
        for_each_kept(s, file, [&](data::SplitPart part, std::string source, std::string target) {
          progress.advance();
          const bool trained = part == data::SplitPart::train;
          train += trained;
          if (trained && corpus.first.size() < kShown) corpus.first.add(source, target);
          if (!trained || !s.stream) corpus.splits.part(part).add(std::move(source), std::move(target));
        }));
  }
  const auto take = [&](const std::filesystem::path& file, data::TextPairs& part) {
    if (file.empty()) return;
    part = read_pairs(file, s);
    data::filter(part, {.duplicates = false});
  };
  take(s.valid, corpus.splits.valid);
  take(s.test, corpus.splits.test);
  HEED_CHECK(corpus.size() > 0, DataError, "no pair is left to train on: ", describe(corpus));
  return corpus;
}

void for_each_training_pair(const Corpus& corpus, const DataSettings& s, const TrainingPairFunction& f) {
  if (s.stream) {
    for (size_t file = 0; file < corpus.parts.size(); ++file)
      for_each_kept(s, file, [&](data::SplitPart part, const std::string& source, const std::string& target) {
        if (part == data::SplitPart::train) f(file, source, target);
      });
    return;
  }
  size_t i = 0;
  for (size_t file = 0; file < corpus.parts.size(); ++file)
    for (int64_t n = 0; n < corpus.parts[file]; ++n, ++i)
      f(file, corpus.splits.train.sources[i], corpus.splits.train.targets[i]);
}

std::string describe(const Corpus& corpus) {
  std::string text =
      concat(grouped(corpus.size()), " pairs for training, ", grouped(corpus.splits.valid.size()),
             " for validation, ", grouped(corpus.splits.test.size()), " for the test");
  const data::FilterCounts& c = corpus.counts;
  std::string left_out;
  for (const auto& [count, what] :
       {std::pair(c.empty, "empty"), std::pair(c.equal, "equal"), std::pair(c.length, "too long"),
        std::pair(c.ratio, "of unlike lengths"), std::pair(c.duplicates, "duplicate")})
    if (count > 0) left_out += concat(left_out.empty() ? "" : ", ", grouped(count), " ", what);
  return left_out.empty() ? text : text + "; left out: " + left_out;
}

TrainingPairs encode_training(const Corpus& corpus, const Tokenizers& tokenizers, const Settings& s) {
  std::vector<std::unique_ptr<data::TextDatasetBuilder>> builders;
  for (size_t file = 0; file < corpus.parts.size(); ++file)
    builders.push_back(std::make_unique<data::TextDatasetBuilder>(
        *tokenizers.source, *tokenizers.target, s.max_tokens, s.stream ? s.out.string() : std::string()));
  Progress progress("encoding", corpus.size(), "pairs");
  progress.hide_below(kQuiet);
  for_each_training_pair(corpus, s, [&](size_t file, std::string_view source, std::string_view target) {
    builders[file]->add(std::string(source), std::string(target));
    progress.advance();
  });
  TrainingPairs result{nullptr, 0};
  std::vector<std::shared_ptr<const data::PairDataset>> parts;
  for (size_t file = 0; file < builders.size(); ++file) {
    const auto part = std::make_shared<data::TextDataset>(builders[file]->finish());
    HEED_CHECK(part->size() > 0, DataError,
               builders.size() > 1 ? concat("of ", s.data[file], " ") : std::string(),
               "no pair for training has at most --max-tokens ", s.max_tokens, " on each side");
    result.too_long += part->too_long();
    parts.push_back(part);
  }
  result.pairs =
      parts.size() == 1 ? parts.front() : std::make_shared<data::MixedDataset>(parts, s.mix_temperature);
  return result;
}

Tokenizers train_tokenizers(const VocabularySettings& vocabulary, const DataSettings& data,
                            const Corpus& corpus) {
  using TextFunction = std::function<void(std::string_view)>;
  const auto sources = [&](const TextFunction& f) {
    for_each_training_pair(corpus, data,
                           [&](size_t, std::string_view source, std::string_view) { f(source); });
  };
  const auto targets = [&](const TextFunction& f) {
    for_each_training_pair(corpus, data,
                           [&](size_t, std::string_view, std::string_view target) { f(target); });
  };
  Progress progress("learning the vocabulary", 0, "texts");
  progress.hide_below(kQuiet);
  if (corpus.size() >= kMany) progress.show();
  const auto counted = [&](const data::TextStream& texts) -> data::TextStream {
    return [&progress, texts](const TextFunction& f) {
      texts([&](std::string_view text) {
        f(text);
        progress.advance();
      });
    };
  };
  if (!vocabulary.separate_vocabularies) {
    const auto both =
        data::train_tokenizer_on_stream(vocabulary.source_options(), counted([&](const TextFunction& f) {
                                          sources(f);
                                          targets(f);
                                        }));
    return {both, both};
  }
  return {data::train_tokenizer_on_stream(vocabulary.source_options(), counted(sources)),
          data::train_tokenizer_on_stream(vocabulary.target_options(), counted(targets))};
}

}  // namespace heed::apps
