// A language model that sees its text by BigBird's blocks, and learns to repeat what stood 64 tokens before.
#include <heed/heed.h>
using namespace heed;

int main() {
  constexpr int64_t kLength = 256;
  // Each block of 64 tokens sees itself, the one before, the first, and another at random.
  const Tensor near = visible_blocks({.window_left = 64, .window_right = 0, .global_tokens = 64}, kLength),
               far = random_blocks(pattern_blocks(kLength), 1, true);

  nn::LanguageModelConfig config = nn::LanguageModelConfig::llama();
  config.vocabulary = 16;
  config.layers = 2;
  config.d_model = config.d_ff = 32;
  config.heads = config.key_heads = 2;
  config.blocks = BlockPattern(logical_or(near, far));
  nn::LanguageModel model(config);
  optim::AdamW adam(model.parameters(), {.lr = 1e-2});

  const Tensor part = randint(0, config.vocabulary, {1, 64}), text = cat({part, part, part, part}, 1);
  const nn::Tokens tokens = nn::Tokens::dense(text.slice(1, 0, kLength - 1).contiguous());
  const Tensor next = text.slice(1, 1, kLength).flatten();
  float loss = 0;
  for (int step = 0; step < 80; ++step) {
    const Tensor y = model.loss(tokens, next);
    y.backward();
    adam.step({.clip = 1});
    loss = y.item<float>();
  }
  std::cout << (loss < 1 ? "It knows the text.\n" : "It has not learned it.\n");
}
