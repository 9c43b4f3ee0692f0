#include "apps/copy_reverse/trained.h"

#include <algorithm>

#include <heed/data/tsv.h>

namespace heed::apps {

Trained open_model(const ModelSettings& s) {
  Trained result{load_settings(s.model), apply(s), nullptr};
  result.model = load_model(result.settings, s.model, result.device);
  return result;
}

void use_pairs(Settings& settings, const PairsSettings& s) {
  const bool generated = !s.task.empty() || s.min_length || s.max_length || s.pairs;
  if (!generated) return;
  HEED_CHECK(s.data.empty(), ConfigError, "--data and options of generated pairs contradict each other");
  if (!s.task.empty()) settings.task = s.task;
  settings.min_length = s.min_length.value_or(settings.min_length);
  settings.max_length = s.max_length.value_or(settings.max_length);
  settings.valid_pairs = s.pairs.value_or(std::max<int64_t>(settings.valid_pairs, 1));
}

data::Pair pair_of(data::TokenIds source, const Settings& settings) {
  settings.check_lengths(std::ssize(source), 0);
  data::TokenIds target;
  if (settings.no_end_mark)
    target = settings.task_rule().solve(source, settings.vocab, settings.last_digit_first);
  return {std::move(source), std::move(target)};
}

int64_t longest_output(int64_t max_decode_length, int64_t longest_source, const nn::Seq2SeqModel& model) {
  return std::min(max_decode_length > 0 ? max_decode_length : 2 * longest_source + 10, model.max_target());
}

std::shared_ptr<const data::PairDataset> pairs_of(const ModelSettings& s, const Trained& trained) {
  std::shared_ptr<const data::PairDataset> pairs;
  if (s.data.empty())
    pairs = trained.settings.validation_data();
  else
    pairs = std::make_shared<data::TsvDataset>(data::read_tsv(s.data, {.vocab = trained.settings.vocab}));
  HEED_CHECK(pairs, ConfigError,
             "the model was trained on a file without a validation part; name one with --data");
  trained.settings.check_lengths(*pairs);
  return pairs;
}

}  // namespace heed::apps
