// The norms of a block's gradients, by parameter.
#include <cstdio>

#include <heed/core/ops.h>
#include <heed/nn/inspection.h>
#include <heed/nn/models/transformer_layer.h>

using namespace heed;

int main() {
  nn::LayerConfig config;
  config.d_model = 64;
  config.heads = 4;
  config.d_ff = 256;
  config.norm = nn::NormPlacement::pre;
  config.activation = nn::FeedForwardKind::gelu;  // exact; gelu_tanh is the approximation
  config.qkv_bias = false;
  nn::EncoderLayer block(config);
  block.to(DType::f64);
  block.eval();  // without dropout, else the norms are of one random mask

  const Tensor x = randn({5, config.d_model}, {.dtype = DType::f64}), r = randn(x.shape(), x.options());
  sum(block(x, Segments::dense(1, 5)) * r).backward();
  std::printf("%s\n", nn::gradient_table(nn::gradient_norms(block)).c_str());
}
