// Language models and their tokenizers from the files of others.
#include <filesystem>

#include <heed/core/io/gguf.h>
#include <heed/data/pair_batch.h>
#include <heed/data/text/pretrained_tokenizer.h>
#include <heed/nn/pretrained/detail/settings_file.h>
#include <heed/nn/pretrained/pretrained.h>
#include <heed/nn/text/text_generator.h>

namespace heed::nn {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 16 << 20;

template <class T>
T value_or(const GgufReader& file, const char* key, T standard) {
  const T* const value = file.value<T>(key);
  return value ? *value : standard;
}

std::optional<int64_t> id_of(const GgufReader& file, const char* key) {
  const int64_t* const value = file.value<int64_t>(key);
  return value ? std::optional(*value) : std::nullopt;
}

data::GgufVocabulary read_vocabulary(const GgufReader& file) {
  const std::vector<std::string>* const tokens =
      file.value<std::vector<std::string>>("tokenizer.ggml.tokens");
  HEED_CHECK(tokens, CheckpointError, "'", file.path(), "' has no vocabulary (tokenizer.ggml.tokens)");
  return {.model = value_or<std::string>(file, "tokenizer.ggml.model", ""),
          .pre = value_or<std::string>(file, "tokenizer.ggml.pre", ""),
          .tokens = *tokens,
          .token_types = value_or<std::vector<int64_t>>(file, "tokenizer.ggml.token_type", {}),
          .merges = value_or<std::vector<std::string>>(file, "tokenizer.ggml.merges", {}),
          .bos = id_of(file, "tokenizer.ggml.bos_token_id"),
          .eos = id_of(file, "tokenizer.ggml.eos_token_id"),
          .unknown = id_of(file, "tokenizer.ggml.unknown_token_id"),
          .add_bos = value_or<bool>(file, "tokenizer.ggml.add_bos_token", false),
          .add_eos = value_or<bool>(file, "tokenizer.ggml.add_eos_token", false)};
}

// Tokens that end a text or a turn, by the names that models give them.
std::vector<int64_t> ending_tokens(const data::PretrainedTokenizer& tokenizer, std::optional<int64_t> end) {
  std::vector<int64_t> ends;
  if (end) ends.push_back(*end);
  for (const char* name : {"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "</s>"}) {
    const std::optional<int64_t> id = tokenizer.find(name);
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  }
  return ends;
}

// A text, or an object whose "content" is one, as special tokens are written.
std::string token_text(const detail::Settings& settings, const char* key) {
  if (!settings.has(key)) return "";
  try {
    return settings.text(key, "");
  } catch (const ConfigError&) {
    return settings.inner(key).text("content", "");
  }
}

std::shared_ptr<LanguageModel> load_model(const std::string& path, Device device, DType dtype, bool int8) {
  HEED_CHECK(!int8 || device == kCpu, ConfigError, "weights of 8-bit integers are for the CPU, not for ",
             device);
  std::shared_ptr<LanguageModel> model = load_pretrained<LanguageModel>(path, {.dtype = dtype, .int8 = int8});
  model->to(device);
  return model;
}

TextGenerator from_gguf(const std::string& path, Device device, DType dtype, bool int8) {
  data::GgufVocabulary vocabulary;
  std::string jinja;
  {
    const GgufReader file(path);
    vocabulary = read_vocabulary(file);
    jinja = value_or<std::string>(file, "tokenizer.chat_template", "");
  }
  const std::shared_ptr<const data::PretrainedTokenizer> tokenizer = data::make_tokenizer(vocabulary, path);
  std::shared_ptr<LanguageModel> model = load_model(path, device, dtype, int8);
  return {std::move(model), tokenizer, vocabulary.add_bos ? vocabulary.bos.value_or(-1) : -1,
          ending_tokens(*tokenizer, vocabulary.eos), parse_chat_template(jinja)};
}

// A tokenizer that heed trained: each of its texts has both marks.
TextGenerator with_own_tokenizer(const std::string& path, Device device, DType dtype, bool int8) {
  const std::shared_ptr<const data::Tokenizer> tokenizer = data::load_tokenizer(path + "/" + kTokenizerFile);
  return {load_model(path, device, dtype, int8), tokenizer, data::kStart, {data::kEnd}};
}

}  // namespace

TextGenerator load_text_generator(const std::string& path, Device device, DType dtype, bool int8) {
  if (!fs::is_directory(path)) return from_gguf(path, device, dtype, int8);
  if (fs::exists(path + "/" + kTokenizerFile)) return with_own_tokenizer(path, device, dtype, int8);
  const std::shared_ptr<const data::PretrainedTokenizer> tokenizer = data::load_pretrained_tokenizer(path);
  const detail::Settings settings =
      detail::read_optional_settings(path + "/tokenizer_config.json", kMaxConfigBytes);
  std::shared_ptr<LanguageModel> model = load_model(path, device, dtype, int8);
  const bool begins =
      settings.flag("add_bos_token", false) || !tokenizer->encode("", data::EncodeOptions{}).empty();
  const std::string first = token_text(settings, "bos_token"), last = token_text(settings, "eos_token");
  const std::optional<int64_t> end = last.empty() ? std::nullopt : tokenizer->find(last);
  return {std::move(model), tokenizer, begins && !first.empty() ? tokenizer->find(first).value_or(-1) : -1,
          ending_tokens(*tokenizer, end), parse_chat_template(settings.text("chat_template", ""))};
}

}  // namespace heed::nn
