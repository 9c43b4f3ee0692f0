// The work whose instructions are counted: each case is prepared and warmed up, then runs once inside
// heed_counted(), which is all that callgrind looks at. Prints the names in the order in which they ran.
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <heed/core/attention.h>
#include <heed/core/autograd/autograd.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/data/pair_loader.h>
#include <heed/data/tasks.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>

/// The region that is counted, found by its name.
extern "C" [[gnu::noinline]] void heed_counted(const std::function<void()>& work) {
  work();
  asm volatile("" ::: "memory");  // keeps the call from becoming a jump that leaves this function early
}

namespace {

using namespace heed;

void count(const std::string& name, const std::function<void()>& work) {
  heed_counted(work);
  std::cout << name << std::endl;
}

void warm_up_and_count(const std::string& name, const std::function<void()>& work) {
  work();
  work();
  count(name, work);
}

/// An operation and then its gradient.
void count_both(const std::string& name, const std::function<Tensor()>& operation) {
  Tensor y = operation();
  const Tensor gy = randn(y.shape());
  y.backward(gy);
  y = {};
  count(name, [&] { y = operation(); });
  count(name + " backward", [&] { y.backward(gy); });
}

Tensor leaf(const Shape& shape) { return randn(shape).set_requires_grad(); }

void count_row_operations() {
  const Tensor x = leaf({128, 128}), residual = leaf({128, 128}), weight = leaf({128}), bias = leaf({128});
  count_both("layer norm", [&] { return layer_norm(x, weight, bias); });
  count_both("residual, dropout and layer norm",
             [&] { return residual_layer_norm(residual, x, weight, bias, {.p = 0.1}).normed; });
  count_both("RMS norm", [&] { return rms_norm(x, weight); });
  count_both("residual, dropout and RMS norm",
             [&] { return residual_rms_norm(residual, x, weight, {.p = 0.1}).normed; });
  const Tensor positions = arange(0, 128), turns = randn({128, 2, 16});
  count_both("rotary, 8 heads", [&] { return rotary(x, positions, turns, {.heads = 8}); });
  count_both("softmax", [&] { return softmax(x); });
  count_both("gelu", [&] { return gelu(x); });
  count_both("gelu_tanh", [&] { return gelu_tanh(x); });
  count_both("dropout", [&] { return dropout(x, {.p = 0.1}); });
  count_both("sum of columns", [&] { return sum(x, {.axes = {0}}); });
  const Tensor ids = randint(0, 20, {128}), table = leaf({20, 128});
  count_both("embedding", [&] { return embedding(ids, table); });
  const Tensor logits = leaf({128, 200}), targets = randint(0, 200, {128});
  count_both("cross-entropy", [&] { return cross_entropy(logits, targets); });
}

void count_attention() {
  const auto causal = [](const Tensor& qkv, const Segments& segments, int64_t heads) {
    return attention_qkv(qkv, segments, {.heads = heads, .visibility = {.causal = Causal::top_left}});
  };
  const Tensor in_short = leaf({4 * 21, 3 * 128}), in_long = leaf({256, 3 * 128});
  const Segments short_ones = Segments::dense(4, 21), long_one = Segments::dense(1, 256);
  count_both("attention, 32 heads of 21 tokens", [&] { return causal(in_short, short_ones, 8); });
  count_both("attention, 2 heads of 256 tokens", [&] { return causal(in_long, long_one, 2); });
}

/// What calling an operation costs, where it has next to nothing to compute.
void count_calls() {
  const Tensor a = scalar(1), b = scalar(2), recorded = scalar(1).set_requires_grad();
  const auto a_hundred = [](const std::function<void()>& work) {
    return [work] {
      for (int i = 0; i < 100; ++i) work();
    };
  };
  warm_up_and_count("100 additions of scalars", a_hundred([&] { add(a, b); }));
  warm_up_and_count("100 recorded additions of scalars", a_hundred([&] { add(recorded, b); }));
  warm_up_and_count("100 recorded additions and their gradients",
                    a_hundred([&] { add(recorded, b).backward(); }));
  warm_up_and_count("100 views", a_hundred([&] { a.view({1, 1}); }));
}

nn::Tokens tokens(int64_t sequences, int64_t length) {
  return nn::Tokens::dense(randint(3, 20, {sequences, length}));
}

void count_model() {
  nn::TransformerConfig config;  // the tutorial's
  config.source_vocabulary = config.target_vocabulary = 20;
  config.d_model = 128;
  config.d_ff = 512;
  config.encoder_layers = config.decoder_layers = 3;
  nn::Transformer model(config);
  const nn::Tokens source = tokens(1, 12), target = tokens(1, 21);
  const Tensor labels = randint(3, 20, {21});
  optim::Adam adam(model.parameters(), {.lr = 1e-4});
  const auto forward = [&] { return cross_entropy(model.forward(source, target), labels, {.ignore = 0}); };
  const auto backward = [](const Tensor& loss) { loss.backward(); };
  backward(forward());
  adam.step({.clip = 1});
  Tensor loss;
  count("training step: forward", [&] { loss = forward(); });
  count("training step: backward", [&] { backward(loss); });
  count("training step: clipping and Adam", [&] { adam.step({.clip = 1}); });

  model.eval();
  warm_up_and_count("greedy decoding of 8 tokens",
                    [&] { nn::greedy_search(model, source, {.max_length = 8, .min_length = 7}); });
}

void count_loading() {
  data::TaskOptions task;
  data::LoaderOptions options;
  options.prefetch = false;
  data::PairLoader loader(std::make_shared<data::TaskDataset>(task, data::Split::train), options);
  warm_up_and_count("a packed batch of 32 pairs", [&] { loader.next(); });
}

}  // namespace

int main() {
  set_thread_count(1);
  count_row_operations();
  count_attention();
  count_calls();
  count_loading();
  count_model();
}
