// Text as the ids of a vocabulary, and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/pair_batch.h>
#include <heed/data/text/unicode.h>

namespace heed::data {

/// What a token is:
/// characters: a code point; words: a run of letters and digits, or another character, with the space before
/// it; symbols: what white space separates, as phonemes are written; bytes: a byte of UTF-8; unigram and bpe:
/// a sub-word of sentencepiece (Kudo, arXiv 1804.10959; Sennrich et al., arXiv 1508.07909). Characters, words
/// and sub-words that the vocabulary lacks become their bytes, so that any text has tokens and is read back.
/// Symbols are a closed set: others become one token, <unk>, and white space becomes one space.
/// pretrained: that of a published model (heed/data/text/pretrained_tokenizer.h), which is loaded, not
/// trained.
enum class TokenizerKind { characters, words, symbols, bytes, unigram, bpe, pretrained };

const char* name(TokenizerKind kind);
/// The inverse of name() for kinds that can be trained; ConfigError listing them otherwise.
TokenizerKind parse_tokenizer_kind(std::string_view text);

struct TokenizerOptions {
  TokenizerKind kind = TokenizerKind::characters;
  Normalization normalization = Normalization::nfc;
  bool lowercase = false;
  int64_t max_vocab = 32'000;  // ids at most, marks and bytes included: the most frequent tokens stay
  int64_t min_count = 1;       // of a token's occurrences; not for sub-words
};

/// Ids 0, 1 and 2 are kPad, kStart and kEnd, which no text has; those of a pretrained tokenizer are what its
/// model was trained with. All functions may be called by several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of a text, without marks. DataError with the byte's position where it is not UTF-8.
  virtual TokenIds encode(std::string_view text) const = 0;
  /// The text of ids; marks are passed over, and bytes that make no UTF-8 are U+FFFD. IndexError for an id
  /// outside the vocabulary. For ids one by one: StreamDecoder.
  std::string decode(std::span<const int64_t> ids) const;

  /// Whether an id is a mark, which stands for no text: start, end, [SEP]. IndexError.
  virtual bool is_mark(int64_t id) const;
  /// The bytes that an id adds to a text, `first` if none but marks comes before it. A character may be
  /// spread over several ids. IndexError.
  virtual std::string bytes(int64_t id, bool first) const = 0;
  /// One id for people: "a", "<0x41>", "<end>".
  virtual std::string piece(int64_t id) const = 0;
  /// Ids are 0 to vocab() - 1.
  virtual int64_t vocab() const = 0;

  virtual const TokenizerOptions& options() const = 0;
  /// The content of its file.
  virtual std::string serialize() const = 0;
};

/// Texts that come one after another: calls the function that it is given with each.
using TextStream = std::function<void(const std::function<void(std::string_view)>&)>;

/// Sub-words are learned from so many bytes (unigram: half), of longer corpora from every 2nd, 4th, … text.
inline constexpr int64_t kMaxSubWordBytes = int64_t{6} << 20;

/// A tokenizer for the texts of a stream, which is asked for them once, and whose tokenizer follows from them
/// alone. Other than for sub-words no text is kept. ConfigError where an option is impossible, or for unigram
/// and bpe in a build without sentencepiece; DataError where a text is not UTF-8 or there are too few for the
/// sub-words asked for.
std::shared_ptr<const Tokenizer> train_tokenizer_on_stream(const TokenizerOptions& options,
                                                           const TextStream& texts);

/// The same of the texts of `corpora`.
std::shared_ptr<const Tokenizer> train_tokenizer(const TokenizerOptions& options,
                                                 const std::vector<std::span<const std::string>>& corpora);

/// Decodes ids one by one, as a model writes them: decode() of all of them, in whole characters, each as soon
/// as its last byte is there.
class StreamDecoder {
 public:
  /// first: no text comes before that of the ids, whose first token may then lose its space.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool first = true)
      : tokenizer_(tokenizer), first_(first) {}

  /// The text that an id completes, often none. IndexError for an id outside the vocabulary, which changes
  /// nothing.
  std::string push(int64_t id);
  /// U+FFFD where a character breaks off, else nothing. The next id begins a new text.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  CharacterAssembler assembler_;
  bool first_;
};

/// From what serialize() gave, or the tokenizer.json of a published model; `file` stands in messages.
/// CheckpointError for anything else; ConfigError for what heed lacks.
std::shared_ptr<const Tokenizer> parse_tokenizer(std::string_view content, std::string_view file);

/// How the second tokenizer's ids differ from the first's, in the first place where they do: "id 7 is 'AE',
/// not 'AA'"; empty where they give all texts the same ids.
std::string difference(const Tokenizer& first, const Tokenizer& second);

/// One file, written whole or not at all. IoError.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& path);
/// IoError, CheckpointError, ConfigError.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

}  // namespace heed::data
