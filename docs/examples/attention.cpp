// Attention by hand, and the operation that does all of it in one pass.
#include <cmath>
#include <cstdio>

#include <heed/core/attention.h>
#include <heed/core/ops.h>

using namespace heed;

void print(const char* title, const Tensor& weights) {
  std::printf("%s\n", title);
  for (int64_t row = 0; row < weights.size(0); ++row) {
    for (const double weight : weights.select(0, row).to_vector<double>()) std::printf("  %.4f", weight);
    std::printf("\n");
  }
}

int main() {
  const int64_t words = 3, width = 4;
  manual_seed(1);
  const Tensor q = randn({words, width}, {.dtype = DType::f64}), k = randn({words, width}, q.options()),
               v = randn({words, width}, q.options());

  const Tensor scores = matmul(q, k.transpose(0, 1)) / std::sqrt(static_cast<double>(width));
  const Tensor weights = softmax(scores);
  const Tensor output = matmul(weights, v);
  print("by hand", weights);

  const AttentionRecord record;  // notes the calls made while it lives
  const Segments sentence = Segments::dense(1, words);
  const Tensor fused = attention(q, k, v, sentence, {.name = "full"});
  attention(q, k, v, sentence, {.visibility = {Causal::top_left}, .name = "causal"});
  print("causal", record.weights("causal", 0, 0));

  const bool same = max(abs(fused - output)).item<double>() < 1e-12;
  std::printf("the operation gives the same output: %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
}
