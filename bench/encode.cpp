// Vectors of texts by a published sentence encoder, tokenizing included, a batch after the other.
#include <algorithm>
#include <string>
#include <vector>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/nn/text/sentence_encoder.h>
#include <heed/version.h>

#include "apps/common/lines.h"
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "bench/peer.h"

namespace {

using namespace heed;

struct Settings {
  std::string model, texts;
  DType dtype = DType::f32;
  int64_t batch = 32, threads = 2;
};

/// The lines that are not empty, the longest first, so that a batch has little padding where it is padded.
std::vector<std::string> longest_first(const std::string& file) {
  apps::LineReader reader(file);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);)
    if (!line.empty()) lines.push_back(line);
  std::ranges::stable_sort(lines, std::ranges::greater{}, &std::string::size);
  return lines;
}

class Encoding {
 public:
  explicit Encoding(const Settings& s) : encoder_(nn::load_sentence_encoder(s.model, kCpu, s.dtype)) {
    const std::vector<std::string> texts = longest_first(s.texts);
    for (size_t i = 0; i < texts.size(); i += static_cast<size_t>(s.batch))
      batches_.emplace_back(texts.begin() + static_cast<int64_t>(i),
                            texts.begin() + std::min(static_cast<int64_t>(i) + s.batch, std::ssize(texts)));
  }

  void operator()() const {
    for (const auto& batch : batches_) encode(batch);
  }

  /// Of each text the first numbers, for comparison.
  std::vector<float> sample() const {
    constexpr int64_t kNumbers = 4;
    std::vector<float> all;
    for (const auto& batch : batches_) {
      const std::vector<float> part = encode(batch).slice(1, 0, kNumbers).contiguous().to_vector<float>();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  Tensor encode(const std::vector<std::string>& texts) const {
    constexpr int64_t kOneBatch = 1 << 20;
    return encoder_.encode(texts, {.batch_tokens = kOneBatch});
  }

  nn::SentenceEncoder encoder_;
  std::vector<std::vector<std::string>> batches_;
};

void run(const Settings& settings) {
  set_thread_count(static_cast<int>(settings.threads));
  const Encoding encoding(settings);
  bench::take_turns(
      {{"name", concat("heed ", HEED_VERSION, " ", settings.dtype)}, {"vectors", encoding.sample()}},
      [&] { encoding(); });
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    Settings settings;
    apps::CommandLine line("encode", "Times vectors of texts by a sentence encoder.");
    apps::OptionTable& options = line.command("", "", [&] { run(settings); });
    options.text("model", settings.model, "A folder in the layout of sentence-transformers");
    options.text("texts", settings.texts, "A file with one text a line");
    options.choice("dtype", settings.dtype, "Of the weights", {{"f32", DType::f32}, {"bf16", DType::bf16}});
    options.integer("batch", settings.batch, "Texts in a batch", {1, 1 << 20});
    options.integer("threads", settings.threads, "Threads", {1, 1024});
    line.run(arguments);
  });
}
