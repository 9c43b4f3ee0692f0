// Texts as vectors, and how near they are to each other.
#include <cstdio>

#include <heed/core/numpy.h>
#include <heed/core/ops.h>
#include <heed/nn/summary.h>

#include "apps/common/console.h"
#include "apps/common/figures/presentation.h"
#include "apps/common/json_lines.h"
#include "apps/common/lines.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "apps/embed/commands.h"

namespace heed::apps {
namespace {

void print_vector(const EncodeSettings& s, const std::string& text, const float* values, int64_t width) {
  if (s.json) {
    Json vector = Json::array();
    for (int64_t i = 0; i < width; ++i) vector.push_back(values[i]);
    return JsonLines().write({{"text", text}, {"embedding", std::move(vector)}});
  }
  std::string line;
  for (int64_t i = 0; i < width; ++i)
    line += (i > 0 ? " " : "") + fixed_text(static_cast<double>(values[i]), 7);
  write_out(line + "\n");
}

}  // namespace

void check_model(const std::filesystem::path& folder) {
  HEED_CHECK(std::filesystem::exists(folder), ConfigError, "there is no model in ", folder.string(),
             ": give a folder in the layout of sentence-transformers with --model, or let ./heed run embed "
             "fetch one");
}

nn::SentenceEncoder open_encoder(const ModelSettings& s) {
  const Device device = apply(s);
  check_model(s.model);
  return nn::load_sentence_encoder(s.model.string(), device, s.dtype);
}

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  LineReader reader(file);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

void encode(const EncodeSettings& s) {
  HEED_CHECK(s.texts.empty() || s.input.empty(), ConfigError,
             "texts come from the arguments or from --input, not both");
  const nn::SentenceEncoder encoder = open_encoder(s);
  const std::vector<std::string> texts = s.texts.empty() ? read_lines(s.input) : s.texts;
  Progress progress("encoding", std::ssize(texts), "texts");
  const Tensor vectors = encoder.encode(texts, {.on_batch = [&](int64_t count) {
                                          throw_if_stopped();
                                          progress.advance(count);
                                        }});
  progress.finish();
  if (!s.out.empty()) {
    save_npy(s.out.string(), vectors);
    if (s.json)
      return JsonLines().write(
          {{"file", s.out.string()}, {"texts", texts.size()}, {"width", encoder.width()}});
    return write_out(concat(printable(s.out.string()), ": ", vectors.shape(), "\n"));
  }
  for (size_t i = 0; i < texts.size(); ++i)
    print_vector(s, texts[i], vectors.data<float>() + static_cast<int64_t>(i) * encoder.width(),
                 encoder.width());
}

void compare(const CompareSettings& s) {
  HEED_CHECK(s.texts.size() >= 2, ConfigError, "compare needs two texts or more");
  const nn::SentenceEncoder encoder = open_encoder(s);
  const Tensor vectors = encoder.encode(s.texts);
  Presentation presentation(s.json, "");
  presentation.matrix("cosines", "cosines", matmul(vectors, vectors.transpose(0, 1)), s.texts);
  if (s.json) presentation.finish();
}

void info(const InfoSettings& s) {
  const nn::SentenceEncoder encoder = open_encoder(s);
  int64_t parameters = 0;
  for (const nn::ComponentCount& c : nn::count_parameters(encoder.model())) parameters += c.parameters;
  if (s.json)
    return JsonLines().write({{"parameters", parameters},
                              {"width", encoder.width()},
                              {"vocab", encoder.tokenizer().vocab()},
                              {"max_tokens", encoder.max_tokens()}});
  write_out(concat(encoder.model().describe(), "\n", nn::component_table(encoder.model()), "\nvectors of ",
                   encoder.width(), " numbers; the first ", encoder.max_tokens(),
                   " tokens of a text count\n"));
}

}  // namespace heed::apps
