// A trained encoder of texts: each becomes a vector, and what means the like lies close together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/text/pretrained_tokenizer.h>
#include <heed/nn/models/text_encoder.h>

namespace heed::nn {

/// How the states of a text's tokens become one vector: their mean, or that of the first ([CLS]).
enum class SentencePooling { mean, first };

struct SentenceOptions {
  int64_t batch_tokens = 4096;                       // in a batch, at most; one text may have more
  std::function<void(int64_t texts)> on_batch = {};  // after each, with the number of its texts
};

/// A TextEncoder with its tokenizer. In evaluation mode, as load_sentence_encoder() gives it, several threads
/// may call encode() at once.
class SentenceEncoder {
 public:
  /// Of each text the first max_tokens count, marks included. ConfigError where the tokenizer has other ids
  /// than the model, or the model not so many positions.
  SentenceEncoder(std::shared_ptr<TextEncoder> model,
                  std::shared_ptr<const data::PretrainedTokenizer> tokenizer, SentencePooling pooling,
                  int64_t max_tokens);

  /// Vectors of length 1, f32 [texts, width] on the CPU; the product of two is their cosine. Texts of like
  /// length are computed together, and what comes out does not depend on which. DataError that names the text
  /// (from 1) for one that is not UTF-8.
  Tensor encode(const std::vector<std::string>& texts, const SentenceOptions& options = {}) const;
  /// The same of another function of sequences, [sequences, width], such as a head's: f32 [texts, width].
  Tensor map(const std::vector<std::string>& texts, int64_t width,
             const std::function<Tensor(const Tokens&)>& function, const SentenceOptions& options = {}) const;

  /// A text's ids, with marks, as far as they count. DataError where it is not UTF-8.
  std::vector<int64_t> tokenize(const std::string& text) const;
  /// A vector for each sequence, [sequences, width], on the model's device and with gradients: what the
  /// pooling gives, and the same of length 1.
  Tensor pool(const Tokens& tokens) const;
  Tensor embed(const Tokens& tokens) const;

  int64_t width() const { return model_->config().d_model; }
  int64_t max_tokens() const { return max_tokens_; }
  TextEncoder& model() const { return *model_; }
  const data::PretrainedTokenizer& tokenizer() const { return *tokenizer_; }
  SentencePooling pooling() const { return pooling_; }

 private:
  std::shared_ptr<TextEncoder> model_;
  std::shared_ptr<const data::PretrainedTokenizer> tokenizer_;
  SentencePooling pooling_;
  int64_t max_tokens_;
};

/// A folder in the layout of sentence-transformers: a BERT or RoBERTa with its tokenizer, and where they are
/// there sentence_bert_config.json (max_seq_length) and 1_Pooling/config.json. IoError, CheckpointError and
/// ConfigError as of load_pretrained() and load_pretrained_tokenizer(); ConfigError for another pooling.
SentenceEncoder load_sentence_encoder(const std::string& folder, Device device = kCpu,
                                      DType dtype = DType::f32);

/// Writes such a folder, which is made: config.json, model.safetensors (f32), tokenizer.json, modules.json,
/// sentence_bert_config.json and 1_Pooling/config.json. sentence-transformers and transformers read it, and
/// load_sentence_encoder(). ConfigError as of save_pretrained(), with nothing written; IoError.
void save_sentence_encoder(const SentenceEncoder& encoder, const std::string& folder);

/// The cross-entropy of finding each question's own answer among those of the batch, by scale times the
/// cosine: multiple negatives ranking (Henderson et al., arXiv 1705.00652). Both are [texts, width] of length
/// 1; row i of the one belongs to row i of the other. A scalar; ShapeError.
Tensor ranking_loss(const Tensor& questions, const Tensor& answers, double scale = 20);

}  // namespace heed::nn
