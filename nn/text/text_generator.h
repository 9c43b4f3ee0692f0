// A language model that takes and gives text: what follows a prompt, and answers in a conversation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heed/data/text/tokenizer.h>
#include <heed/nn/decoding/generate.h>

namespace heed::nn {

struct TextGenerateOptions {
  int64_t max_tokens = 256;  // made, at most
  SampleOptions sample = {.temperature = 0.8,
                          .top_p = 0.95};  // temperature 0: the most probable token each time
  double repetition_penalty = 1;           // see GenerateOptions
  std::vector<std::string> stop = {};      // texts that end the text, and are not part of it
  /// Told the text as it comes, in whole characters. What it throws ends the work.
  std::function<void(std::string_view)> on_text = {};
};

/// How a model that was trained on conversations has them written: a turn is `before`, the role, `between`,
/// the content, `after`.
struct ChatTemplate {
  std::string before, between, after;
  std::string system;    // of a conversation that gives none; empty: there is none
  bool trimmed = false;  // contents are without white space at their ends
};

/// Which of those that heed knows a Jinja template is: ChatML (SmolLM2, Qwen) or Llama-3's. Nothing for
/// others.
std::optional<ChatTemplate> parse_chat_template(std::string_view jinja);

/// A LanguageModel with its tokenizer.
class TextGenerator {
 public:
  /// start: the token that begins texts, -1 if none does; ends: those that end one. ConfigError where the
  /// tokenizer has more ids than the model.
  TextGenerator(std::shared_ptr<LanguageModel> model, std::shared_ptr<const data::Tokenizer> tokenizer,
                int64_t start, std::vector<int64_t> ends, std::optional<ChatTemplate> chat = {});

  /// What follows a prompt; where learned positions run out, the text ends. DataError for a prompt that is
  /// not UTF-8, or is empty where no token begins texts; errors of generate() and sample().
  std::string generate(std::string_view prompt, const TextGenerateOptions& options = {}) const;
  /// The mean loss of a text's tokens, each given those before it, in nats, and their number. `window` tokens
  /// at most are looked back at. DataError for a text of fewer than two tokens.
  std::pair<double, int64_t> loss(std::string_view text, int64_t window = 1024) const;

  LanguageModel& model() const { return *model_; }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::optional<ChatTemplate>& chat() const { return chat_; }
  const std::vector<int64_t>& ends() const { return ends_; }
  int64_t start() const { return start_; }

 private:
  std::shared_ptr<LanguageModel> model_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  int64_t start_;
  std::vector<int64_t> ends_;
  std::optional<ChatTemplate> chat_;
};

/// A conversation: what was said is kept, with its keys and values, so that each answer costs its own tokens
/// alone.
class Chat {
 public:
  /// system: what the model is told first; nothing: as it was trained. The generator must outlive it.
  /// ConfigError for a model that has no template.
  explicit Chat(const TextGenerator& generator, std::optional<std::string> system = {});

  /// The answer to what the user says. An answer that was cut at max_tokens, or that on_text ended by
  /// throwing, is part of the conversation as far as it came.
  std::string reply(std::string_view user, const TextGenerateOptions& options = {});
  /// Tokens so far.
  int64_t tokens() const { return std::ssize(history_); }

 private:
  void add_turn(std::string_view role, std::string_view content);
  void add(std::string_view text, bool special);

  const TextGenerator& generator_;
  KeyValueCache cache_;
  std::vector<int64_t> history_;
};

/// A folder that load_pretrained<LanguageModel>() reads, with tokenizer.json (or vocab.json and merges.txt)
/// or the tokenizer that save_text_generator() wrote, or a GGUF file, which has its vocabulary. `int8`: as
/// PretrainedOptions has it. IoError, CheckpointError, ConfigError.
TextGenerator load_text_generator(const std::string& path, Device device = kCpu, DType dtype = DType::f32,
                                  bool int8 = false);

/// The file of a tokenizer that heed trained, in a model's folder.
inline constexpr const char* kTokenizerFile = "model.tokenizer";

/// Writes a folder that load_text_generator() reads: save_pretrained()'s files, and the tokenizer: a
/// published one as tokenizer.json and tokenizer_config.json, which `transformers` reads too, one that heed
/// trained as kTokenizerFile. Errors as of save_pretrained().
void save_text_generator(const TextGenerator& generator, const std::string& folder);
/// The tokenizer alone.
void save_generator_tokenizer(const TextGenerator& generator, const std::string& folder);

}  // namespace heed::nn
