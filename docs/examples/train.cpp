// A small Transformer learns to write four symbols backwards.
#include <cstdio>
#include <vector>

#include <heed/core/ops.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/decoding/tokens.h>
#include <heed/nn/init.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>

using namespace heed;

int main() {
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 12;  // 1 starts an output, 2 ends it
  config.d_model = 64;
  config.heads = 4;
  config.d_ff = 128;
  config.encoder_layers = config.decoder_layers = 1;
  config.norm = nn::NormPlacement::pre;
  config.set_dropout(0);
  nn::Transformer model(config);
  nn::initialize(model, nn::matrix_rules(nn::Initializer::xavier_uniform));
  optim::Adam adam(model.parameters(), {.lr = 1e-3});

  const Tensor start = full({32, 1}, 1, {.dtype = DType::i64}), end = full({32, 1}, 2, {.dtype = DType::i64});
  for (int step = 1; step <= 1000; ++step) {
    const Tensor source = randint(3, 12, {32, 4}), reversed = flip(source, 1);
    const Tensor target = cat({start, reversed}, 1), labels = cat({reversed, end}, 1);
    const Tensor logits = model.forward(nn::Tokens::dense(source), nn::Tokens::dense(target));
    const Tensor loss = cross_entropy(logits, labels.flatten());
    loss.backward();
    adam.step({.clip = 1});  // and forgets the gradients
    if (step % 100 == 0) std::printf("step %d  loss %.4f\n", step, loss.item<double>());
  }

  const nn::Hypothesis output = nn::greedy_search(model, nn::Tokens::packed({{3, 4, 5, 6}})).front();
  for (const int64_t symbol : output.tokens) std::printf("%d ", static_cast<int>(symbol));
  std::printf("\n");
  return output.tokens == std::vector<int64_t>{6, 5, 4, 3} ? 0 : 1;
}
