// Pairs of the copy-and-reverse task, a batch without pads, and the attention of a training step.
#include <cstdio>
#include <vector>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/data/tasks.h>
#include <heed/nn/models/transformer.h>

using namespace heed;

void print(const char* name, const data::TokenIds& symbols) {
  std::printf("%-7s", name);
  for (const int64_t symbol : symbols) std::printf(" %d", int(symbol));
  std::printf("\n");
}

int main() {
  const data::TaskDataset dataset({.task = "copy_reverse", .max_length = 5}, data::Split::train);
  std::vector<data::Pair> pairs;
  while (pairs.size() < 2) pairs.push_back(dataset.get(0, static_cast<int64_t>(pairs.size())));
  const data::PairBatch batch = data::pack(pairs, std::vector<int64_t>{0, 1});
  print("source", batch.source_ids);  // 1 starts, 2 ends, the sequences follow one another
  print("target", batch.target_ids);
  print("labels", batch.labels);

  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 20;
  config.d_model = 64;
  config.heads = 4;
  config.d_ff = 128;
  config.encoder_layers = config.decoder_layers = 1;  // post-norm, dropout 0.1
  nn::Transformer model(config);
  const auto tokens = [](const data::TokenIds& ids, const data::Sequences& s) {
    return nn::Tokens{tensor(ids, {s.rows}, kCpu), Segments(s.first, s.length, s.first, s.length)};
  };
  const AttentionRecord record;
  const Tensor logits =
      model.forward(tokens(batch.source_ids, batch.source), tokens(batch.target_ids, batch.target));
  cross_entropy(logits, tensor(batch.labels, {batch.target.rows}, kCpu)).backward();

  for (const std::string& name : record.names()) {
    const Tensor weights = record.weights(name, 1);  // of the second pair: [heads, queries, keys]
    const bool whole = max(abs(sum(weights, {.axes = {2}}) - 1)).item<float>() < 1e-5f;
    std::printf("%-33s %d x %2d x %2d, rows sum to 1: %s\n", name.c_str(), int(weights.size(0)),
                int(weights.size(1)), int(weights.size(2)), whole ? "yes" : "no");
  }
}
