// A GPT of characters learns a rhyme. Ctrl-C stops it with a checkpoint, from which the next run goes on.
#include <csignal>

#include <heed/heed.h>
using namespace heed;
const std::string kRhyme =
    "This is the cat that killed the rat that ate the malt in the house that Jack built.";
volatile std::sig_atomic_t stopped = 0;

struct Windows : data::Dataset<std::string> {  // of 32 characters, and the one that follows
  int64_t size() const override { return std::ssize(kRhyme) - 32; }
  std::string get(int64_t, int64_t i) const override { return kRhyme.substr(static_cast<size_t>(i), 33); }
  std::string fingerprint() const override { return kRhyme; }
};

train::Batch collate(std::span<const std::string> windows, std::span<const int64_t>) {
  std::vector<int64_t> ids;
  for (const std::string& window : windows) ids.insert(ids.end(), window.begin(), window.end());
  return {{{tensor(ids, {std::ssize(windows), 33})}, {}}, std::ssize(windows), 32 * std::ssize(windows)};
}

int main() {
  nn::LanguageModelConfig config = nn::LanguageModelConfig::llama();
  config.vocabulary = config.d_ff = config.d_model = 128;
  config.layers = config.heads = config.key_heads = 2;
  nn::LanguageModel model(config);
  optim::AdamW adam(model.parameters());
  data::Loader<std::string, train::Batch> loader(std::make_shared<Windows>(), {collate}, {.batch_size = 8});
  const auto loss = [&](const StepInputs& batch) {
    const Tensor inputs = batch.tensors[0].slice(1, 0, 32), labels = batch.tensors[0].slice(1, 1, 33);
    return model.loss(nn::Tokens::dense(inputs), labels.flatten());
  };
  train::Trainer trainer(model, adam, loader, loss, {.epochs = 15, .directory = "rhyme"});
  if (train::has_checkpoint("rhyme")) trainer.resume();
  std::signal(SIGINT, [](int) { stopped = 1; });
  trainer.run({.epoch = [](const auto& epoch) { std::cout << "loss " << epoch.loss << "\n"; },
               .stop = [] { return stopped != 0; }});
  const auto made = nn::generate(model, {{'c', 'a', 't'}}, {.max_tokens = 40, .sample = {.temperature = 0}});
  return stopped || std::string(made[0].begin(), made[0].end()) == kRhyme.substr(15, 40) ? 0 : 1;
}
