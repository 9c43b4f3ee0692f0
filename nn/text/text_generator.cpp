#include <algorithm>
#include <utility>

#include <heed/core/base/text.h>
#include <heed/core/ops.h>
#include <heed/data/text/pretrained_tokenizer.h>
#include <heed/nn/detail/evaluation.h>
#include <heed/nn/text/text_generator.h>

namespace heed::nn {
namespace {

// A text as it comes, token by token: whole characters go on at once, but for what may be the beginning of a
// text that ends it.
class Stream {
 public:
  Stream(const data::Tokenizer& tokenizer, const TextGenerateOptions& options, bool first)
      : decoder_(tokenizer, first), options_(options) {}

  // Whether the text goes on.
  bool push(int64_t token) {
    waiting_ += decoder_.push(token);
    return look();
  }

  std::string finish() {
    if (!stopped_) {
      waiting_ += decoder_.finish();
      if (look()) give(waiting_.size());
    }
    return std::move(text_);
  }

 private:
  bool look() {
    size_t held = 0;
    for (const std::string& stop : options_.stop) {
      const size_t at = stop.empty() ? std::string::npos : waiting_.find(stop);
      if (at != std::string::npos) {
        waiting_.resize(at);
        stopped_ = true;
      }
      for (size_t n = std::min(stop.size(), waiting_.size()); n > held; --n)
        if (waiting_.ends_with(std::string_view(stop).substr(0, n))) held = n;
    }
    give(stopped_ ? waiting_.size() : waiting_.size() - held);
    return !stopped_;
  }

  void give(size_t bytes) {
    if (bytes == 0) return;
    const std::string part = waiting_.substr(0, bytes);
    waiting_.erase(0, bytes);
    text_ += part;
    if (options_.on_text) options_.on_text(part);
  }

  data::StreamDecoder decoder_;
  const TextGenerateOptions& options_;
  std::string waiting_, text_;
  bool stopped_ = false;
};

GenerateOptions token_options(const TextGenerateOptions& options, const TextGenerator& generator,
                              Stream& stream) {
  return {.max_tokens = options.max_tokens,
          .sample = options.sample,
          .repetition_penalty = options.repetition_penalty,
          .ends = generator.ends(),
          .on_token = [&stream](int64_t, int64_t token) { return stream.push(token); }};
}

data::TokenIds encode(const data::Tokenizer& tokenizer, std::string_view text, bool special) {
  const auto* const pretrained = dynamic_cast<const data::PretrainedTokenizer*>(&tokenizer);
  return pretrained ? pretrained->encode(text, {.add_marks = false, .special_tokens = special})
                    : tokenizer.encode(text);
}

}  // namespace

std::optional<ChatTemplate> parse_chat_template(std::string_view jinja) {
  const auto has = [&](std::string_view text) { return jinja.find(text) != std::string_view::npos; };
  if (has("<|im_start|>") && has("<|im_end|>")) {
    ChatTemplate chat{"<|im_start|>", "\n", "<|im_end|>\n", "", false};
    // What stands between the system's turn and its end where the conversation does not begin with one.
    const std::string_view begin = "<|im_start|>system\n";
    const size_t first = jinja.find(begin), last = jinja.find("<|im_end|>", first);
    if (first != std::string_view::npos && last != std::string_view::npos) {
      const std::string_view text = jinja.substr(first + begin.size(), last - first - begin.size());
      if (text.find_first_of("{}'\"") == std::string_view::npos) chat.system = text;
    }
    return chat;
  }
  if (has("<|start_header_id|>") && has("<|eot_id|>"))
    return ChatTemplate{"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "", true};
  return std::nullopt;
}

TextGenerator::TextGenerator(std::shared_ptr<LanguageModel> model,
                             std::shared_ptr<const data::Tokenizer> tokenizer, int64_t start,
                             std::vector<int64_t> ends, std::optional<ChatTemplate> chat)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      start_(start),
      ends_(std::move(ends)),
      chat_(std::move(chat)) {
  const int64_t vocabulary = model_->config().vocabulary;
  HEED_CHECK(tokenizer_->vocab() <= vocabulary, ConfigError, "the model has a vocabulary of ", vocabulary,
             ", its tokenizer of ", tokenizer_->vocab());
  HEED_CHECK(start_ >= -1 && start_ < vocabulary, ConfigError, "the token ", start_,
             " that begins texts is none of ", vocabulary);
}

std::string TextGenerator::generate(std::string_view prompt, const TextGenerateOptions& options) const {
  std::vector<int64_t> ids;
  if (start_ >= 0) ids.push_back(start_);
  const data::TokenIds symbols = encode(*tokenizer_, prompt, true);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  HEED_CHECK(!ids.empty(), DataError, "the prompt is empty, and the model has no token that begins texts");
  Stream stream(*tokenizer_, options, prompt.empty());
  GenerateOptions tokens = token_options(options, *this, stream);
  const LanguageModelConfig& config = model_->config();
  if (config.position == PositionKind::learned)  // the last token needs none
    tokens.max_tokens =
        std::min(tokens.max_tokens, std::max<int64_t>(1, config.max_length + 1 - std::ssize(ids)));
  nn::generate(*model_, {ids}, tokens);
  return stream.finish();
}

std::pair<double, int64_t> TextGenerator::loss(std::string_view text, int64_t window) const {
  HEED_CHECK(window >= 2, ConfigError, "a window of ", window, " tokens; it must have two or more");
  std::vector<int64_t> ids;
  if (start_ >= 0) ids.push_back(start_);
  const data::TokenIds symbols = encode(*tokenizer_, text, false);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  HEED_CHECK(ids.size() >= 2, DataError, "a text of ", ids.size(), " tokens has none to predict");
  const Evaluation evaluation(*model_);
  const Device device = model_->embedding.weight.device();
  double sum = 0;
  const auto count = std::ssize(ids) - 1;
  for (int64_t first = 0; first < count; first += window) {
    const int64_t last = std::min(first + window, count);
    const std::vector<int64_t> input(ids.begin() + first, ids.begin() + last),
        target(ids.begin() + first + 1, ids.begin() + last + 1);
    const Tensor loss = model_->loss(Tokens::packed({input}, device), tensor(target, {last - first}, device));
    sum += loss.item<double>() * static_cast<double>(last - first);
  }
  return {sum / static_cast<double>(count), count};
}

Chat::Chat(const TextGenerator& generator, std::optional<std::string> system)
    : generator_(generator), cache_(generator.model().make_cache(1)) {
  HEED_CHECK(generator.chat(), ConfigError,
             "the model was not trained on conversations, or heed does not know their form");
  if (generator.start() >= 0 &&
      !generator.chat()->before.starts_with(generator.tokenizer().piece(generator.start())))
    history_.push_back(generator.start());
  const std::string first = std::move(system).value_or(generator.chat()->system);
  if (!first.empty()) add_turn("system", first);
}

void Chat::add(std::string_view text, bool special) {
  const data::TokenIds ids = encode(generator_.tokenizer(), text, special);
  history_.insert(history_.end(), ids.begin(), ids.end());
}

// Marks in a content are plain text: nobody speaks for another.
void Chat::add_turn(std::string_view role, std::string_view content) {
  const ChatTemplate& chat = *generator_.chat();
  add(concat(chat.before, role, chat.between), true);
  add(chat.trimmed ? trim(content) : content, false);
  add(chat.after, true);
}

std::string Chat::reply(std::string_view user, const TextGenerateOptions& options) {
  const NoGrad no_grad;
  add_turn("user", user);
  const ChatTemplate& chat = *generator_.chat();
  add(concat(chat.before, "assistant", chat.between), true);
  Stream stream(generator_.tokenizer(), options, true);
  GenerateOptions tokens = token_options(options, generator_, stream);
  tokens.cache = &cache_;
  std::vector<int64_t> said;
  tokens.on_token = [&](int64_t, int64_t token) {
    said.push_back(token);
    return stream.push(token);
  };
  const auto remember = [&] {
    history_.insert(history_.end(), said.begin(), said.end());
    add(chat.after, true);
  };
  try {
    nn::generate(generator_.model(), {{history_.begin() + cache_.length(0), history_.end()}}, tokens);
  } catch (...) {
    // The cache may hold a part of a step.
    cache_ = generator_.model().make_cache(1);
    remember();
    throw;
  }
  remember();
  return stream.finish();
}

}  // namespace heed::nn
