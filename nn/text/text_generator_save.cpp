// A language model's folder: weights and settings as its family has them, and its tokenizer.
#include <filesystem>

#include <heed/core/io/atomic_file.h>
#include <heed/data/text/pretrained_tokenizer.h>
#include <heed/nn/pretrained/detail/written_json.h>
#include <heed/nn/pretrained/pretrained.h>
#include <heed/nn/text/text_generator.h>

namespace heed::nn {
namespace {

namespace fs = std::filesystem;

// A text in Jinja: quoted, as JSON quotes it.
std::string in_quotes(std::string_view text) { return detail::Json(text).dump(); }

std::string jinja_of(const ChatTemplate& chat) {
  std::string jinja;
  // Without quotes, so that it is found again.
  if (!chat.system.empty())
    jinja = concat("{% if messages[0]['role'] != 'system' %}", chat.before, "system", chat.between,
                   chat.system, chat.after, "{% endif %}");
  const std::string content = chat.trimmed ? "message['content'] | trim" : "message['content']";
  return concat(jinja, "{% for message in messages %}{{ ", in_quotes(chat.before), " + message['role'] + ",
                in_quotes(chat.between), " + ", content, " + ", in_quotes(chat.after),
                " }}{% endfor %}{% if add_generation_prompt %}{{ ",
                in_quotes(concat(chat.before, "assistant", chat.between)), " }}{% endif %}");
}

detail::Json settings_of(const TextGenerator& generator) {
  detail::Json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (generator.start() >= 0) json["bos_token"] = generator.tokenizer().piece(generator.start());
  json["add_bos_token"] = generator.start() >= 0;
  if (!generator.ends().empty()) json["eos_token"] = generator.tokenizer().piece(generator.ends().front());
  if (generator.chat()) json["chat_template"] = jinja_of(*generator.chat());
  return json;
}

}  // namespace

void save_generator_tokenizer(const TextGenerator& generator, const std::string& folder) {
  const bool published = dynamic_cast<const data::PretrainedTokenizer*>(&generator.tokenizer()) != nullptr;
  const fs::path to = folder;
  data::save_tokenizer(generator.tokenizer(),
                       (to / (published ? "tokenizer.json" : kTokenizerFile)).string());
  if (published)
    write_whole_file((to / "tokenizer_config.json").string(), settings_of(generator).dump(2) + "\n");
}

void save_text_generator(const TextGenerator& generator, const std::string& folder) {
  save_pretrained(generator.model(), folder);
  save_generator_tokenizer(generator, folder);
}

}  // namespace heed::nn
