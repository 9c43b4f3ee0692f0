// The Transformer of the paper, with norms before its sub-layers: its parameters, and that it is causal.
#include <cstdio>

#include <heed/core/ops.h>
#include <heed/nn/models/transformer.h>
#include <heed/nn/summary.h>

using namespace heed;

int main() {
  nn::TransformerConfig config;  // width 512, 8 heads, 6+6 layers, feed-forward 2048
  config.source_vocabulary = config.target_vocabulary = 10'000;
  config.norm = nn::NormPlacement::pre;  // and with it a norm after each stack
  nn::Transformer model(config);
  model.eval();  // without dropout
  std::printf("%s\n", nn::component_table(model).c_str());

  const NoGrad no_grad;
  const Tensor source = randint(0, 10'000, {2, 10}), target = randint(0, 10'000, {2, 8});
  const Tensor other = cat({target.slice(1, 0, 7), target.slice(1, 7, 8) + 1}, 1);  // another last token
  const auto logits = [&](const Tensor& t) {
    return model.forward(nn::Tokens::dense(source), nn::Tokens::dense(t)).reshape({2, 8, 10'000});
  };
  const Tensor change = abs(logits(target) - logits(other));
  std::printf("logits [%d, %d, %d]\n", int(change.size(0)), int(change.size(1)), int(change.size(2)));
  const bool causal = max(change.slice(1, 0, 7)).item<float>() == 0;
  const bool noticed = max(change.slice(1, 7, 8)).item<float>() > 0;
  std::printf("a new last token changes %s\n",
              causal && noticed ? "the last logits alone" : "something else");
  return causal && noticed ? 0 : 1;
}
