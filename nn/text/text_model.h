// Trained sequence-to-sequence models that take and give text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/sampling.h>
#include <heed/data/text/tokenizer.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {

struct TextOptions {
  int64_t beam = 1;                    // hypotheses followed for each text
  int64_t best = 1;                    // outputs wanted of each text, at most as many as the beam has
  double length_penalty = 0;           // exponent: see DecodeOptions
  int64_t max_length = 0;              // tokens of an output; 0: as the model was trained
  int64_t batch_tokens = 4096;         // source rows in a batch, at most; one text may have more
  std::function<void()> on_step = {};  // called before each token; what it throws ends the work
  std::function<void(int64_t texts)> on_batch = {};  // after each, with the number of its texts
  int64_t min_length = 0;                            // tokens of an output, at least
  std::string prefix = {};                           // what each output begins with
  std::optional<SampleOptions> sample = {};          // outputs are drawn, not searched for
  /// As DecodeOptions', with the number of the text.
  std::function<void(int64_t text, std::span<const Continuation> kept, std::span<const Continuation> pruned)>
      on_choice = {};
};

/// One of a text's outputs.
struct TextOutput {
  std::string text;
  double score = 0;             // log probability, divided by the length penalty
  bool finished = true;         // false: cut at max_length
  std::vector<int64_t> tokens;  // the target tokenizer's ids
};

/// Texts of more tokens are refused.
inline constexpr int64_t kMaxTextTokens = 4096;

/// A Transformer between two tokenizers, or several that decode as one (nn/decoding/ensemble.h). In
/// evaluation mode, as load_text_model() gives it and an ensemble always is, several threads may call run()
/// at once.
class TextModel {
 public:
  /// max_output: the tokens of an output at most, unless asked otherwise. ConfigError where the tokenizers
  /// have other vocabularies than the model.
  TextModel(std::shared_ptr<Transformer> model, std::shared_ptr<const data::Tokenizer> source,
            std::shared_ptr<const data::Tokenizer> target, int64_t max_output);
  /// The ensemble of several models; of one it is that model.
  TextModel(std::vector<std::shared_ptr<Transformer>> models, std::shared_ptr<const data::Tokenizer> source,
            std::shared_ptr<const data::Tokenizer> target, int64_t max_output);
  /// The ensemble of all their models, which it shares with them; outputs have as many tokens as the model
  /// with the least of them gives. ConfigError without models, and where the tokenizers of one differ from
  /// the first one's: it names the first difference.
  static TextModel ensemble(const std::vector<TextModel>& models);

  /// The best output of one text.
  std::string run(std::string_view text, const TextOptions& options = {}) const;

  /// The outputs of each text, best first; texts of like length are computed together. A text without tokens
  /// has one empty output. DataError that names the text (from 1) for one that is not UTF-8 or too long;
  /// ConfigError for options that cannot be; NumericError where the model answers with NaN.
  std::vector<std::vector<TextOutput>> run(const std::vector<std::string>& texts,
                                           const TextOptions& options = {}) const;

  /// The model, of an ensemble the first.
  Transformer& model() const { return *models_.front(); }
  /// All models of an ensemble.
  const std::vector<std::shared_ptr<Transformer>>& models() const { return models_; }
  const data::Tokenizer& source() const { return *source_; }
  const data::Tokenizer& target() const { return *target_; }
  int64_t max_output() const { return max_output_; }
  /// Tokens of a text, at most.
  int64_t max_input() const;

  /// Writes model.safetensors, which tells its architecture too, source.tokenizer and target.tokenizer; the
  /// weights, of that type, come last. IoError; StateError for an ensemble, whose models have folders of
  /// their own.
  void save(const std::string& folder, DType dtype = DType::f32) const;

 private:
  std::vector<data::TokenIds> tokenize(const std::vector<std::string>& texts) const;

  std::vector<std::shared_ptr<Transformer>> models_;
  std::shared_ptr<Seq2SeqModel> searched_;  // the only one, or their ensemble
  std::shared_ptr<const data::Tokenizer> source_, target_;
  int64_t max_output_;
};

/// What TextModel::save() wrote, in evaluation mode. IoError; CheckpointError for files that are damaged or
/// do not fit each other, before memory of the sizes that they claim is asked for.
TextModel load_text_model(const std::string& folder, Device device = kCpu);

/// The ensemble of the models in these folders. As load_text_model(), and as TextModel::ensemble().
TextModel load_text_ensemble(const std::vector<std::string>& folders, Device device = kCpu);

}  // namespace heed::nn
