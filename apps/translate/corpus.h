// The texts of a run: read, filtered, split, tokenized.
#pragma once

#include <memory>
#include <string>

#include <heed/data/text/text_dataset.h>

#include "apps/translate/settings.h"

namespace heed::apps {

struct Corpus {
  data::TextSplits splits;
  data::FilterCounts counts;  // of --data
};

/// The pairs of a file in --format, or of a catalogue by its name (.po, .mo), unfiltered. DataError.
data::TextPairs read_pairs(const std::filesystem::path& file, const DataSettings& settings);

/// --data or --source-lines and --target-lines, without what is to be left out, split by the source; --valid
/// and
/// --test take the place of parts, of which only empty pairs are left out. DataError, also where nothing is
/// left to train on.
Corpus read_corpus(const DataSettings& settings);

/// "107,012 pairs for training, …; left out: 3 empty".
std::string describe(const Corpus& corpus);

struct Tokenizers {
  std::shared_ptr<const data::Tokenizer> source, target;
};

/// From the texts of training, one for both sides unless they are separate.
Tokenizers train_tokenizers(const VocabularySettings& settings, const data::TextPairs& train);

}  // namespace heed::apps
