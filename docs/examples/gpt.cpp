// A GPT of characters, of Llama's parts: it learns a rhyme and goes on with it from where it is told to.
#include <heed/heed.h>
using namespace heed;

const std::string kRhyme =
    "This is the farmer sowing his corn, that kept the cock that crowed in the morn, that waked the priest "
    "all shaven and shorn, that married the man all tattered and torn, that kissed the maiden all forlorn.";

int main() {
  nn::LanguageModelConfig config = nn::LanguageModelConfig::llama();
  config.vocabulary = 128;
  config.layers = 2;
  config.d_model = 64;
  config.heads = 4;
  config.key_heads = 2;
  config.d_ff = 128;
  nn::LanguageModel model(config);
  optim::AdamW adam(model.parameters(), {.lr = 3e-3});

  std::vector<std::vector<int64_t>> windows;
  std::vector<int64_t> next;  // what follows each character of them
  for (auto from = kRhyme.begin(); kRhyme.end() - from > 64; from += 4) {
    windows.emplace_back(from, from + 64);
    next.insert(next.end(), from + 1, from + 65);
  }
  const nn::Tokens batch = nn::Tokens::packed(windows);
  const Tensor labels = tensor(next, batch.ids.shape());
  for (int step = 0; step < 120; ++step) {
    const Tensor loss = model.loss(batch, labels);
    if (step % 40 == 0) std::cout << "step " << step << ": loss " << loss.item<float>() << "\n";
    loss.backward();
    adam.step({.clip = 1});
  }

  const std::string start = "that waked ";
  const nn::GenerateOptions options{.max_tokens = 50,
                                    .sample = {.temperature = 0.5, .top_k = 10, .top_p = 0.9}};
  const auto made = nn::generate(model, {{start.begin(), start.end()}}, options);
  const std::string text = start + std::string(made[0].begin(), made[0].end());
  std::cout << text << "\n";
  return kRhyme.find(text) == std::string::npos;
}
