// Sub-words by sentencepiece, where the build has it.
#include <algorithm>
#include <charconv>

#include <heed/core/base/check.h>

#include "detail/replace_all.h"
#include "detail/vocabulary_tokenizer.h"

#ifdef HEED_HAVE_SENTENCEPIECE

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace heed::data::detail {
namespace {

namespace sp = sentencepiece;

class SubWordTokenizer final : public Tokenizer {
 public:
  SubWordTokenizer(const TokenizerOptions& options, std::string model, std::string_view file)
      : options_(options), model_(std::move(model)) {
    const sp::util::Status status = processor_.LoadFromSerializedProto(model_);
    HEED_CHECK(status.ok(), CheckpointError, file,
               ": the sub-words are no model of sentencepiece: ", status.ToString());
    HEED_CHECK(processor_.pad_id() == kPad && processor_.bos_id() == kStart && processor_.eos_id() == kEnd,
               CheckpointError, file, ": the sub-words have their marks at ", processor_.pad_id(), ", ",
               processor_.bos_id(), " and ", processor_.eos_id(), "; expected 0 pad, 1 start and 2 end");
  }

  TokenIds encode(std::string_view text) const override {
    std::vector<int> ids;
    const std::string ready = normalize(text, options_.normalization, options_.lowercase);
    const sp::util::Status status = processor_.Encode(ready, &ids);
    HEED_CHECK(status.ok(), DataError, "cannot cut the text into sub-words: ", status.ToString());
    TokenIds symbols;
    for (const int id : ids) symbols.push_back(std::max<int64_t>(id, 0));
    return symbols;
  }

  std::string bytes(int64_t id, bool first) const override {
    if (is_mark(id)) return {};
    const int number = static_cast<int>(id);
    std::string text = processor_.IdToPiece(number);
    if (processor_.IsUnknown(number)) return " \u2047 ";  // as sentencepiece writes it
    int byte = 0;                                         // "<0x41>"
    if (processor_.IsByte(number) && text.size() == 6 &&
        std::from_chars(text.data() + 3, text.data() + 5, byte, 16).ec == std::errc())
      return std::string(1, static_cast<char>(byte));
    constexpr std::string_view kSpace = "\u2581";
    if (first && text.starts_with(kSpace)) text.erase(0, kSpace.size());
    replace_all(text, kSpace, " ");
    return text;
  }

  std::string piece(int64_t id) const override {
    HEED_CHECK(id >= 0 && id < vocab(), IndexError, "id ", id, " is not in 0 to ", vocab() - 1);
    return well_formed(processor_.IdToPiece(static_cast<int>(id)));
  }

  int64_t vocab() const override { return processor_.GetPieceSize(); }
  const TokenizerOptions& options() const override { return options_; }
  std::string serialize() const override { return write_header(options_) + model_; }

 private:
  TokenizerOptions options_;
  std::string model_;
  sp::SentencePieceProcessor processor_;
};

/// Texts of a stream in the form that sentencepiece asks for: all, or evenly spread ones.
class Sentences final : public sp::SentenceIterator {
 public:
  // The time that unigram takes rises faster with the texts.
  Sentences(const TokenizerOptions& options, const TextStream& texts)
      : most_bytes_(options.kind == TokenizerKind::unigram ? kMaxSubWordBytes / 2 : kMaxSubWordBytes) {
    texts([&](std::string_view text) {
      if (seen_++ % every_ == 0) add(normalize(text, options.normalization, options.lowercase));
    });
  }
  bool done() const override { return next_ == kept_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return kept_[next_]; }
  sp::util::Status status() const override { return {}; }

 private:
  void add(std::string text) {
    bytes_ += std::ssize(text);
    kept_.push_back(std::move(text));
    while (bytes_ > most_bytes_ && kept_.size() > 1) halve();
  }

  void halve() {
    every_ *= 2;
    bytes_ = 0;
    for (size_t i = 0; 2 * i < kept_.size(); ++i) {
      if (i > 0) kept_[i] = std::move(kept_[2 * i]);
      bytes_ += std::ssize(kept_[i]);
    }
    kept_.resize((kept_.size() + 1) / 2);
  }

  int64_t most_bytes_;
  std::vector<std::string> kept_;  // text 0, every_, 2 every_, …
  int64_t seen_ = 0, every_ = 1, bytes_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::shared_ptr<const Tokenizer> train_sub_words(const TokenizerOptions& options, const TextStream& texts) {
  Sentences sentences(options, texts);
  HEED_CHECK(!sentences.done(), DataError, "there are no texts to learn sub-words from");
  std::string model;
  const sp::util::Status status = sp::SentencePieceTrainer::Train(
      {{"model_type", name(options.kind)},
       {"vocab_size", std::to_string(options.max_vocab)},
       {"hard_vocab_limit", options.kind == TokenizerKind::unigram ? "false" : "true"},
       {"pad_id", "0"},
       {"bos_id", "1"},
       {"eos_id", "2"},
       {"unk_id", "3"},
       {"byte_fallback", "true"},
       {"character_coverage", "0.9999"},
       {"normalization_rule_name", "identity"},
       {"num_threads", "1"},  // its threads change the result
       {"minloglevel", "2"}},
      &sentences, &model);
  HEED_CHECK(status.ok(), DataError, "cannot learn ", options.max_vocab,
             " sub-words from these texts: ", status.ToString());
  return std::make_shared<SubWordTokenizer>(options, std::move(model), "the trained tokenizer");
}

std::shared_ptr<const Tokenizer> load_sub_words(const TokenizerOptions& options, std::string_view model,
                                                std::string_view file) {
  return std::make_shared<SubWordTokenizer>(options, std::string(model), file);
}

}  // namespace heed::data::detail

#else

namespace heed::data::detail {
namespace {

[[noreturn]] void fail(const TokenizerOptions& options) {
  throw ConfigError(concat("tokenizers of ", name(options.kind),
                           " need sentencepiece, which this heed was built ",
                           "without; install libsentencepiece-dev and build it again"));
}

}  // namespace

std::shared_ptr<const Tokenizer> train_sub_words(const TokenizerOptions& options, const TextStream&) {
  fail(options);
}

std::shared_ptr<const Tokenizer> load_sub_words(const TokenizerOptions& options, std::string_view,
                                                std::string_view) {
  fail(options);
}

}  // namespace heed::data::detail

#endif
