// The texts of a run: read, filtered, split, tokenized.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <heed/data/text/text_dataset.h>

#include "apps/translate/settings.h"

namespace heed::apps {

struct Corpus {
  data::TextSplits splits;     // with --stream without the pairs for training
  data::TextPairs first;       // the first few of those
  std::vector<int64_t> parts;  // pairs for training of each file, in their order
  data::FilterCounts counts;   // of --data

  /// Pairs for training.
  int64_t size() const;
};

/// The pairs of a file in --format, or of a catalogue by its name (.po, .mo), unfiltered. DataError.
data::TextPairs read_pairs(const std::filesystem::path& file, const DataSettings& settings);

/// --data or --source-lines and --target-lines, without what is to be left out, split by the source; --valid
/// and --test take the place of parts, of which only empty pairs are left out. Of several files each is
/// filtered by itself. DataError, also where nothing is left to train on.
Corpus read_corpus(const DataSettings& settings);

/// Called with the number of a pair's file and its sides.
using TrainingPairFunction =
    std::function<void(size_t file, std::string_view source, std::string_view target)>;

/// Calls f with each pair for training, in order: from memory, or with --stream from the files again.
void for_each_training_pair(const Corpus& corpus, const DataSettings& settings,
                            const TrainingPairFunction& f);

/// "107,012 pairs for training, …; left out: 3 empty".
std::string describe(const Corpus& corpus);

struct Tokenizers {
  std::shared_ptr<const data::Tokenizer> source, target;
};

/// From the texts of training, one for both sides unless they are separate.
Tokenizers train_tokenizers(const VocabularySettings& vocabulary, const DataSettings& data,
                            const Corpus& corpus);

/// The pairs for training as the model gets them, files mixed by --mix-temperature; with --stream from files
/// without names in --out.
struct TrainingPairs {
  std::shared_ptr<const data::PairDataset> pairs;
  int64_t too_long;  // pairs of more than --max-tokens, which are left out
};

/// DataError where nothing is left of a file, IoError where --out has no room.
TrainingPairs encode_training(const Corpus& corpus, const Tokenizers& tokenizers, const Settings& settings);

}  // namespace heed::apps
