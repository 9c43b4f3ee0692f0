// The texts of a run: read, filtered, split, tokenized.
#pragma once

#include <memory>
#include <string>

#include <heed/data/text/text_dataset.h>

#include "apps/translate/settings.h"

namespace heed::apps {

struct Corpus {
  data::TextSplits splits;
  std::vector<int64_t> parts;  // pairs for training of each file, in their order
  data::FilterCounts counts;   // of --data
};

/// The pairs of a file in --format, or of a catalogue by its name (.po, .mo), unfiltered. DataError.
data::TextPairs read_pairs(const std::filesystem::path& file, const DataSettings& settings);

/// --data or --source-lines and --target-lines, without what is to be left out, split by the source; --valid
/// and --test take the place of parts, of which only empty pairs are left out. Of several files each is
/// filtered by itself. DataError, also where nothing is left to train on.
Corpus read_corpus(const DataSettings& settings);

/// "107,012 pairs for training, …; left out: 3 empty".
std::string describe(const Corpus& corpus);

struct Tokenizers {
  std::shared_ptr<const data::Tokenizer> source, target;
};

/// From the texts of training, one for both sides unless they are separate.
Tokenizers train_tokenizers(const VocabularySettings& settings, const data::TextPairs& train);

/// The pairs for training as the model gets them, files mixed by --mix-temperature.
struct TrainingPairs {
  std::shared_ptr<const data::PairDataset> pairs;
  int64_t too_long;  // pairs of more than --max-tokens, which are left out
};

/// DataError where nothing is left of a file.
TrainingPairs encode_training(const Corpus& corpus, const Tokenizers& tokenizers, const Settings& settings);

}  // namespace heed::apps
