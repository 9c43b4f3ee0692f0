// An encoder block does not know the order of words, until positions are added to them.
#include <cstdio>

#include <heed/core/ops.h>
#include <heed/nn/attention/position.h>
#include <heed/nn/models/transformer_layer.h>
#include <heed/nn/summary.h>

using namespace heed;

int main() {
  const nn::LayerConfig config;  // width 512, 8 heads, feed-forward 2048, post-norm
  nn::EncoderLayer block(config);
  block.to(DType::f64);
  block.eval();  // without dropout
  std::printf("%s\n", nn::component_table(block).c_str());

  const NoGrad no_grad;
  const int64_t words = 3;
  const Tensor vectors = randn({words, config.d_model}, {.dtype = DType::f64});
  const auto change = [&](const Tensor& positions) {
    const Segments sentence = Segments::dense(1, words);
    const Tensor forwards = block(vectors + positions, sentence);
    const Tensor backwards = block(flip(vectors, 0) + positions, sentence);
    return max(abs(flip(backwards, 0) - forwards)).item<double>();
  };
  const Tensor positions = nn::sinusoidal_table(words, config.d_model);
  const double without = change(zeros_like(positions)), with = change(positions);
  std::printf("without positions each word's output %s\n", without < 1e-12 ? "stays the same" : "changes");
  std::printf("with positions it changes by up to %.2f\n", with);
  return without < 1e-12 && with > 0.1 ? 0 : 1;
}
