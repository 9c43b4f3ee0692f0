// What follows a prompt, how well a text is predicted, and what a model is.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include <heed/nn/pretrained/lora_files.h>
#include <heed/nn/summary.h>

#include "apps/common/console.h"
#include "apps/common/json_lines.h"
#include "apps/common/program.h"
#include "apps/common/text.h"
#include "apps/lm/commands.h"
#include "apps/lm/documents.h"

namespace heed::apps {

nn::TextGenerator open_generator(const ModelSettings& s) {
  HEED_CHECK(!s.model.empty(), ConfigError,
             "give a model with --model: a GGUF file, or a folder with config.json");
  HEED_CHECK(std::filesystem::exists(s.model), ConfigError, "there is no model in ", s.model.string());
  const Device device = apply(s);
  const DType dtype = s.weights == WeightKind::bf16 ? DType::bf16 : DType::f32;
  if (nn::is_lora_folder(s.model.string())) {
    HEED_CHECK(s.weights != WeightKind::int8, ConfigError,
               "adapters are added to weights in f32 or bf16; for int8 merge them first (lm merge)");
    nn::TextGenerator generator = load_merged(s.model, {});
    generator.model().to(dtype);
    generator.model().to(device);
    return generator;
  }
  return nn::load_text_generator(s.model.string(), device, dtype, s.weights == WeightKind::int8);
}

nn::TextGenerateOptions streaming(const SamplingSettings& s, bool quiet) {
  nn::TextGenerateOptions options{
      .max_tokens = s.max_tokens,
      .sample = {.temperature = s.temperature, .top_k = s.top_k, .top_p = s.top_p, .min_p = s.min_p},
      .repetition_penalty = s.repetition_penalty,
      .stop = s.stop};
  options.on_text = [quiet](std::string_view text) {
    throw_if_stopped();
    if (quiet) return;
    write_out(printable_lines(text));
    std::fflush(stdout);
  };
  return options;
}

void generate(const GenerateSettings& s) {
  const nn::TextGenerator generator = open_generator(s);
  const nn::TextGenerateOptions options = streaming(s, s.json);
  for (const std::string& prompt : s.prompts.empty() ? std::vector<std::string>{""} : s.prompts) {
    const auto start = std::chrono::steady_clock::now();
    if (!s.json) write_out(printable_lines(prompt));
    const std::string text = generator.generate(prompt, options);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (s.json)
      JsonLines().write({{"prompt", prompt}, {"text", text}, {"seconds", seconds.count()}});
    else
      write_out("\n");
  }
}

int64_t count_positions(const nn::LanguageModel& model) {
  const nn::LanguageModelConfig& config = model.config();
  return config.position == nn::PositionKind::learned ? config.max_length : int64_t{1} << 20;
}

train::Prediction predict(const nn::TextGenerator& generator, const std::vector<std::string>& documents,
                          int64_t window) {
  train::Prediction sum;
  for (const std::string& document : documents) {
    throw_if_stopped();
    const auto [loss, tokens] =
        generator.loss(document, std::min(window, count_positions(generator.model())));
    sum.loss += loss * static_cast<double>(tokens);
    sum.tokens += tokens;
  }
  return sum;
}

void evaluate(const EvalSettings& s) {
  HEED_CHECK(!s.data.empty(), ConfigError, "eval needs a text: give a file with --data");
  const std::vector<std::string> documents = read_documents(s.data, s.unit);
  const nn::TextGenerator generator = open_generator(s);
  const train::Prediction p = predict(generator, documents, s.window);
  const int64_t characters = count_characters(documents);
  const double bits = p.bits_per_character(characters);
  if (s.json)
    return JsonLines().write({{"loss", p.mean()},
                              {"perplexity", p.perplexity()},
                              {"bits_per_character", bits},
                              {"tokens", p.tokens},
                              {"characters", characters}});
  write_out(concat("loss ", fixed_text(p.mean(), 4), "  perplexity ", fixed_text(p.perplexity(), 2),
                   "  bits a character ", fixed_text(bits, 4), "  of ", p.tokens, " tokens, ", characters,
                   " characters\n"));
}

void info(const ModelSettings& s) {
  const nn::TextGenerator generator = open_generator(s);
  int64_t parameters = 0;
  for (const nn::ComponentCount& c : nn::count_parameters(generator.model())) parameters += c.parameters;
  if (s.json)
    return JsonLines().write({{"parameters", parameters},
                              {"vocab", generator.tokenizer().vocab()},
                              {"chat", generator.chat().has_value()}});
  write_out(concat(generator.model().describe(), "\n", nn::component_table(generator.model()),
                   "\nvocabulary of ", generator.tokenizer().vocab(),
                   generator.chat() ? "; trained on conversations\n" : "\n"));
}

}  // namespace heed::apps
