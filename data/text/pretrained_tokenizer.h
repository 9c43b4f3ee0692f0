// Tokenizers of published models, from the files that come with their weights.
//
// WordPiece (Schuster and Nakajima, ICASSP 2012; as BERT has it, arXiv 1810.04805) and byte-level BPE (GPT-2:
// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), with the normalizers,
// pre-tokenizers, post-processors and decoders of BERT, RoBERTa, GPT-2, Llama-3, Qwen-2 and SmolLM2, as the
// Python package `tokenizers` has them: the same ids. What a file asks for beyond that is a ConfigError that
// names it. All files are taken as hostile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/text/tokenizer.h>

namespace heed::data {

/// What is dropped of a text that has too many ids.
enum class Truncation { end, beginning };

struct EncodeOptions {
  bool add_marks = true;       // those that the model was trained with: [CLS] … [SEP], <|begin_of_text|>
  bool special_tokens = true;  // such a token in the text ("<|im_end|>") is itself; false: it is plain text
  int64_t max_length = 0;      // ids at most, marks included; 0: any number
  Truncation truncation = Truncation::end;
};

/// Two texts in one sequence: ids, and for each the segment that it belongs to, as its model numbers them
/// (BERT: 0 or 1).
struct PairEncoding {
  TokenIds ids, segments;
};

class PretrainedTokenizer final : public Tokenizer {
 public:
  struct Parts;  // internal
  explicit PretrainedTokenizer(std::unique_ptr<const Parts> parts);
  ~PretrainedTokenizer() override;

  /// Without marks; special tokens in the text are themselves.
  TokenIds encode(std::string_view text) const override;
  /// DataError where the text is not UTF-8; ConfigError for a max_length that the marks alone exceed.
  TokenIds encode(std::string_view text, const EncodeOptions& options) const;
  /// The longer of the texts is cut first. Errors as above.
  PairEncoding encode_pair(std::string_view a, std::string_view b, const EncodeOptions& options = {}) const;

  /// Marks are the special tokens of the file.
  bool is_mark(int64_t id) const override;
  std::string bytes(int64_t id, bool first) const override;
  /// As it stands in the vocabulary: "##ing", "Ġthe". Empty for an id that the vocabulary passes over.
  std::string piece(int64_t id) const override;
  int64_t vocab() const override;
  /// The id of a piece or of a special token, such as "[CLS]" or "<|im_end|>".
  std::optional<int64_t> find(std::string_view piece) const;

  const TokenizerOptions& options() const override;
  /// A tokenizer.json.
  std::string serialize() const override;

 private:
  std::unique_ptr<const Parts> parts_;
};

/// From the content of a tokenizer.json; `file` stands in messages. Its settings of padding and truncation
/// are those of a call and have no effect: see EncodeOptions. CheckpointError for a file that is not sound,
/// ConfigError for what heed lacks.
std::shared_ptr<const PretrainedTokenizer> parse_tokenizer_json(std::string_view content,
                                                                std::string_view file);

/// From a file: tokenizer.json, or BERT's vocab.txt; or from a folder with tokenizer.json, else vocab.json
/// and merges.txt (GPT-2's), else vocab.txt. IoError, CheckpointError, ConfigError.
std::shared_ptr<const PretrainedTokenizer> load_pretrained_tokenizer(const std::string& path);

/// BERT's, of its list of pieces, one a line, with [UNK], [CLS], [SEP], [PAD] and [MASK] where they are
/// there. Cased models have `lowercase` false.
std::shared_ptr<const PretrainedTokenizer> parse_vocab_txt(std::string_view content, std::string_view file,
                                                           bool lowercase = true);

/// GPT-2's, of its pieces with their ids and its merges.
std::shared_ptr<const PretrainedTokenizer> parse_vocab_and_merges(std::string_view vocab_json,
                                                                  std::string_view merges_txt,
                                                                  std::string_view file);

/// What the metadata of a GGUF file say of a tokenizer, under keys that begin with "tokenizer.ggml.".
struct GgufVocabulary {
  std::string model = {};                // model: "gpt2" (byte-level BPE) or "bert" (WordPiece)
  std::string pre = {};                  // pre: "gpt-2", "llama-bpe", "qwen2", "smollm", …; not for "bert"
  std::vector<std::string> tokens = {};  // tokens: by id
  std::vector<int64_t> token_types =
      {};  // token_type: 1 normal, 2 unknown, 3 control, 4 user-defined, …; or none
  std::vector<std::string> merges = {};  // merges: "a b"; not for "bert"
  std::optional<int64_t> bos = {},
                         eos = {};  // bos_token_id, eos_token_id; for "bert" cls_token_id, seperator_token_id
  std::optional<int64_t> unknown = {};  // unknown_token_id
  bool add_bos = false;                 // add_bos_token
  bool add_eos = false;                 // add_eos_token
};
/// CheckpointError for lists that do not fit each other, ConfigError for models and pre-tokenizers that heed
/// lacks. `file` stands in messages.
std::shared_ptr<const PretrainedTokenizer> make_tokenizer(const GgufVocabulary& vocabulary,
                                                          std::string_view file);

}  // namespace heed::data
