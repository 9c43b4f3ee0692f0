#include "apps/translate/settings.h"

#include <cmath>

namespace heed::apps {
namespace {

constexpr IntegerRange kFromZero{0, int64_t{1} << 40};
constexpr NumberRange kShare{0, 1, false, true};

using data::TokenizerKind;

void use_translate(Settings& s) {
  s.position = nn::PositionKind::rotary;
  s.mix_temperature = 2;
  s.epochs = 4;
}

void use_pronounce(Settings& s) {
  s.format = PairFormat::cmudict;
  s.valid_share = 0.022;  // as many words as in the literature: 2,670 and 12,000
  s.test_share = 0.0988;
  s.source_tokenizer = TokenizerKind::characters;
  s.target_tokenizer = TokenizerKind::symbols;
  s.separate_vocabularies = s.lowercase = true;
  s.tie = Tie::output;
  s.select = Selection::edits;
  s.max_tokens = 64;
  s.batch_tokens = 1'000;
  s.position = nn::PositionKind::rotary;
  s.epochs = 22;
  s.lr = 2e-3;
  s.warmup = 400;
  s.layers = 3;
  s.d_model = 128;
  s.heads = 4;
  s.d_ff = 512;
}

void use_preset(Settings& s) {
  if (s.preset == Preset::translate) use_translate(s);
  if (s.preset == Preset::pronounce) use_pronounce(s);
}

void declare_vocabulary(OptionTable& table, VocabularySettings& s) {
  const std::vector<std::pair<std::string, TokenizerKind>> kinds{
      {"characters", TokenizerKind::characters}, {"words", TokenizerKind::words},
      {"symbols", TokenizerKind::symbols},       {"bytes", TokenizerKind::bytes},
      {"unigram", TokenizerKind::unigram},       {"bpe", TokenizerKind::bpe}};
  table.group("Vocabulary");
  table.choice("source-tokenizer", s.source_tokenizer, "What a source's tokens are", kinds);
  table.choice("target-tokenizer", s.target_tokenizer, "What a target's tokens are", kinds);
  table.flag("separate-vocabularies", s.separate_vocabularies,
             "A vocabulary for each side; by default one for both, of equal tokenizers");
  table.integer("vocab", s.vocab, "Ids of a vocabulary, at most", {4, int64_t{1} << 24});
  table.integer("min-count", s.min_count, "Occurrences that a token needs, other than a sub-word",
                {1, int64_t{1} << 24});
  table.choice("normalization", s.normalization, "Unicode's normal form",
               {{"none", data::Normalization::none},
                {"nfc", data::Normalization::nfc},
                {"nfkc", data::Normalization::nfkc}});
  table.flag("lowercase", s.lowercase, "Sources in small letters; with one vocabulary targets too");
}

void declare_judging(OptionTable& table, Settings& s) {
  table.choice("select", s.select, "What the best epoch has the least of, on validation texts",
               {{"loss", Selection::loss}, {"edits", Selection::edits}});
  table.integer("patience", s.patience, "Epochs without a better one that end the training; 0: none do",
                kFromZero);
  table.integer("valid-texts", s.valid_texts,
                "Validation texts whose outputs are judged after each epoch, at most", kFromZero);
  table.integer("beam", s.beam, "Hypotheses followed in the test at the end", {1, 1 << 10});
  table.number("length-penalty", s.length_penalty, "Exponent of the length penalty there",
               {0, 100, false, false});
}

}  // namespace

void declare_data(OptionTable& table, DataSettings& s) {
  table.group("Texts");
  table.list("data", s.data, "Pairs from a file, or from several with commas between them").not_saved();
  table.number("mix-temperature", s.mix_temperature,
               "Of several files: 1: all pairs of each; higher: nearer to as many of each",
               {0, 1e6, true, false});
  table.path("source-lines", s.source_lines, "Sources from a file, one a line, with --target-lines")
      .not_saved();
  table.path("target-lines", s.target_lines, "Their targets, line by line").not_saved();
  table.choice("format", s.format, "What the files of pairs hold: source<TAB>target, or CMUdict's lines",
               {{"tsv", PairFormat::tsv}, {"cmudict", PairFormat::cmudict}});
  table.flag("quoted", s.quoted, "Fields may stand in quotes");
  table.flag("stress", s.stress, "CMUdict's phonemes with their stress");
  table.path("valid", s.valid, "Validation pairs from a file of their own").not_saved();
  table.path("test", s.test, "Test pairs from a file of their own").not_saved();
  table.number("valid-share", s.valid_share, "Part of the sources for validation, without --valid", kShare);
  table.number("test-share", s.test_share, "Part of the sources for the test, without --test", kShare);
  table.flag("keep-duplicates", s.keep_duplicates, "Take pairs as often as they occur");
  table.flag("drop-equal", s.drop_equal, "Leave pairs out whose target equals their source");
  table.integer("max-length", s.max_length, "Leave longer texts out, in characters; 0: none", kFromZero);
  table.number("max-ratio", s.max_ratio, "Leave pairs out whose sides differ more in length; 0: none",
               {0, 1e6, false, false});
  table.flag("stream", s.stream, "Keep no training pairs in memory, but in files without names in --out")
      .not_saved();
}

void declare_training(OptionTable& table, Settings& s) {
  declare_common(table, s);
  table
      .choice(
          "preset", s.preset,
          "Where the other settings begin: translate is for sentences, pronounce for words and their "
          "phonemes",
          {{"default", Preset::standard}, {"translate", Preset::translate}, {"pronounce", Preset::pronounce}})
      .before_others([&s] { use_preset(s); });
  declare_data(table, s);
  declare_vocabulary(table, s);
  declare_optimization(table, s);
  table.integer("batch-tokens", s.batch_tokens, "Tokens of a batch, sources and targets together, at most",
                {16, int64_t{1} << 24});
  table.integer("max-tokens", s.max_tokens, "Leave pairs out of which a side has more tokens", {1, 1 << 16});
  declare_architecture(table, s);
  table.choice("tie", s.tie, "Embeddings that share their values: none, target and output, or all",
               {{"none", Tie::none}, {"output", Tie::output}, {"all", Tie::all}});
  declare_run(table, s);
  declare_judging(table, s);
}

data::TokenizerOptions VocabularySettings::source_options() const {
  return {.kind = source_tokenizer,
          .normalization = normalization,
          .lowercase = lowercase,
          .max_vocab = vocab,
          .min_count = min_count};
}

data::TokenizerOptions VocabularySettings::target_options() const {
  return {.kind = target_tokenizer,
          .normalization = normalization,
          .lowercase = lowercase && !separate_vocabularies,
          .max_vocab = vocab,
          .min_count = min_count};
}

Settings::Settings() {
  out = "runs/translate";
  batch_size = 1024;  // it is batch_tokens that ends a batch
  label_smoothing = 0.1;
  dropout = 0.1;
  lr = 1e-3;
  warmup = 1'000;
  epochs = 20;
  d_model = 256;
  heads = 4;
  d_ff = 1024;
}

nn::TransformerConfig Settings::model_config(int64_t source_vocabulary, int64_t target_vocabulary) const {
  nn::TransformerConfig result = config(source_vocabulary, target_vocabulary);
  result.tie_generator = tie != Tie::none;
  result.share_embeddings = tie == Tie::all;
  return result;
}

data::LoaderOptions Settings::loader_options() const {
  return {.batch_size = batch_size,
          .max_tokens = batch_tokens,
          .shuffle = !no_shuffle,
          .seed = static_cast<uint64_t>(seed)};
}

void Settings::check() const {
  RunSettings::check();
  HEED_CHECK(data.empty() != (source_lines.empty() || target_lines.empty()) &&
                 source_lines.empty() == target_lines.empty(),
             ConfigError,
             "pairs come from --data, or from --source-lines and --target-lines: give one or the other");
  HEED_CHECK(valid_share + test_share < 1, ConfigError, "--valid-share ", valid_share, " and --test-share ",
             test_share, " leave nothing to train on");
  HEED_CHECK(separate_vocabularies || source_tokenizer == target_tokenizer, ConfigError, "a tokenizer of ",
             data::name(source_tokenizer), " and one of ", data::name(target_tokenizer),
             " share no vocabulary; add --separate-vocabularies");
  HEED_CHECK(tie != Tie::all || !separate_vocabularies, ConfigError,
             "--tie all needs one vocabulary; with --separate-vocabularies the most is --tie output");
  HEED_CHECK(2 * (max_tokens + 2) <= batch_tokens, ConfigError, "--batch-tokens ", batch_tokens,
             " has no room for a pair of --max-tokens ", max_tokens, " on each side");
  HEED_CHECK(position != nn::PositionKind::learned || max_tokens + 2 <= max_positions, ConfigError,
             "--max-tokens ", max_tokens, " and two marks are more than --max-positions ", max_positions);
  check_random_positions(max_tokens + 2);
  constexpr int64_t kAny = 4;  // in place of vocabularies that are not known yet
  model_config(kAny, kAny).check();
}

Settings load_settings(const std::filesystem::path& directory) {
  Settings settings;
  OptionTable table("translate");
  declare_training(table, settings);
  read_trained_settings(table, directory);
  return settings;
}

std::unique_ptr<nn::Transformer> make_model(const Settings& s, const nn::TransformerConfig& config) {
  ArchitectureSettings architecture = s;
  if (!architecture.embedding_std)
    architecture.embedding_std = 1 / std::sqrt(static_cast<double>(config.d_model));
  return make_model(architecture, config, s.seed);
}

}  // namespace heed::apps
