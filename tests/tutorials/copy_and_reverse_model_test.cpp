// What the plain recipe's model gets wrong, each shown in plain_recipe.h and absent in heed: docs/tutorials,
// "Copy and reverse, from scratch".
#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/init.h>
#include <heed/nn/models/transformer.h>

#include "plain_recipe.h"

namespace heed::test {
namespace {

double rms(const Tensor& x) {
  const NoGrad no_grad;
  return std::sqrt(mean(x * x).item<double>());
}

double share_of_zeros(const Tensor& x) {
  const NoGrad no_grad;
  return mean(equal(x, zeros_like(x)).to(DType::f32)).item<double>();
}

double largest(const Tensor& x) {
  const NoGrad no_grad;
  return max(abs(x)).item<double>();
}

nn::TransformerConfig tutorial_model(double dropout = 0) {
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 20;
  config.d_model = 128;
  config.heads = 8;
  config.d_ff = 512;
  config.encoder_layers = config.decoder_layers = 3;
  config.set_dropout(dropout);
  return config;
}

const nn::Tokens kSource = nn::Tokens::packed({{1, 5, 6, 7, 2}});
const nn::Tokens kTarget = nn::Tokens::packed({{1, 5, 6, 7, 7, 6, 5}});
constexpr const char* kDecoder = "decoder.layers.0.self_attn";

TEST(CopyAndReverse, EmbeddingsDrownThePositions) {
  const double positions = rms(nn::sinusoidal_table(10, 128).to(DType::f32));
  EXPECT_NEAR(positions, std::sqrt(0.5), 1e-6);
  const auto scaled = [](const nn::Transformer& model) {
    return std::sqrt(128.0) * rms(model.src_embedding.weight);
  };
  nn::TransformerConfig config = tutorial_model();
  config.embedding_deviation = 1;  // the tutorial's
  EXPECT_GT(scaled(nn::Transformer(config)) / positions, 15);
  nn::Transformer model(tutorial_model());
  EXPECT_NEAR(scaled(model), 1, 0.05);
  nn::initialize(model, nn::matrix_rules(nn::Initializer::xavier_uniform));
  EXPECT_LT(scaled(model) / positions, 2);  // as the default of copy_reverse begins
}

TEST(CopyAndReverse, CrossAttentionTakesKeysOfAnyLength) {
  const plain::MultiHeadAttention recipe{128, 8, 0};
  const Tensor query = randn({1, 8, 128}), memory = randn({1, 12, 128});
  EXPECT_NO_THROW(recipe(query, query, query));
  EXPECT_THROW(recipe(query, memory, memory), ShapeError);

  const nn::MultiHeadAttention ours(128, 8);
  const Segments segments = Segments::cross(Segments::dense(1, 8), Segments::dense(1, 12));
  EXPECT_EQ(ours.cross(query.reshape({8, 128}), memory.reshape({12, 128}), segments).shape(),
            (Shape{8, 128}));
}

TEST(CopyAndReverse, BatchesHoldSequencesOfAnyLength) {
  const std::vector<data::Pair> pairs{{{3, 4, 5}, {3, 4, 5, 5, 4, 3}}, {{6, 7}, {6, 7, 7, 6}}};
  EXPECT_THROW(plain::batch_of({pairs[0].source, pairs[1].source}), ShapeError);
  EXPECT_EQ(data::pack(pairs, std::vector<int64_t>{0, 1}).source_ids.size(), 3u + 2 + 2 + 2);
}

// With -1e9 on every score of a pad's row, the softmax gives all keys the same weight, the future's too.
TEST(CopyAndReverse, PadsAttendToNothing) {
  const Tensor ids = tensor(std::vector<int64_t>{1, 5, 6, 0, 0}, {1, 5});
  const Tensor x = randn({1, 5, 128});
  const plain::MultiHeadAttention recipe{128, 8, 0};
  const Tensor weights = recipe(x, x, x, plain::target_mask(ids)).second;
  const Tensor pad_row = weights.select(2, 3);  // [1, heads, keys]
  EXPECT_LT(largest(pad_row - 0.2), 1e-6);

  const nn::MultiHeadAttention ours(128, 8);
  const int32_t length = 3;
  const nn::Tokens tokens = nn::Tokens::dense(ids, std::span(&length, 1));
  const AttentionRecord record;
  const Tensor y =
      attention_qkv(ours.project_qkv(x.reshape({5, 128})), tokens.segments, {.heads = 8, .name = "a"});
  EXPECT_EQ(record.weights("a", 0).shape(), (Shape{8, 3, 3}));
  EXPECT_EQ(largest(y.slice(0, 3, 5)), 0);
}

TEST(CopyAndReverse, MapsAreThoseOfTheModelMasksIncluded) {
  const Tensor x = randn({1, 7, 128});
  const Tensor drawn = plain::MultiHeadAttention{128, 8, 0}(x, x, x).second;  // as drawn: without its mask
  EXPECT_GT(largest(triu(drawn.select(0, 0), 1)), 0.1);

  nn::Transformer model(tutorial_model());
  const AttentionRecord record;
  model.forward(kSource, kTarget);
  EXPECT_EQ(largest(triu(record.weights(kDecoder, 0), 1)), 0);
}

TEST(CopyAndReverse, EmbeddingsAreDroppedOutOnce) {
  const Tensor ones_in = ones({1000, 128});
  EXPECT_NEAR(share_of_zeros(dropout(dropout(ones_in, {.p = 0.1}), {.p = 0.1})), 0.19, 0.01);
  nn::Transformer model(tutorial_model(0.1));
  model.train();
  const Tensor ids = randint(3, 20, {1000});
  const Tensor embedded = model.embed_target(ids, zeros({1000}, {.dtype = DType::i64}), 1);
  EXPECT_NEAR(share_of_zeros(embedded), 0.1, 0.01);
}

TEST(CopyAndReverse, PositionsOfAnyWidthAndLength) {
  EXPECT_NO_THROW(plain::PositionalEncoding(128, 50));
  EXPECT_THROW(plain::PositionalEncoding(127, 50), Error);
  EXPECT_THROW(plain::PositionalEncoding(128, 50)(zeros({1, 51, 128})), Error);

  EXPECT_EQ(nn::sinusoidal_table(50, 127).shape(), (Shape{50, 127}));
  const nn::PositionTable grows(nn::PositionKind::sinusoidal, 128);
  grows.table(50, DType::f32, kCpu);
  EXPECT_GE(grows.table(6000, DType::f32, kCpu).size(0), 6000);
}

// What is handed out as attention weights is what dropout left of them.
TEST(CopyAndReverse, WeightsAreThoseBeforeDropout) {
  const Tensor x = randn({1, 10, 128});
  const Tensor recipe = plain::MultiHeadAttention{128, 8, 0.1}(x, x, x).second;
  EXPECT_GT(largest(sum(recipe, {.axes = {3}}) - 1), 0.05);
  EXPECT_GT(share_of_zeros(recipe), 0.05);

  nn::Transformer model(tutorial_model(0.1));
  nn::initialize(model, nn::matrix_rules(nn::Initializer::xavier_uniform));  // else many weights underflow
  model.train();
  const AttentionRecord record;
  model.forward(kSource, kTarget);
  const Tensor ours = record.weights("encoder.layers.0.self_attn", 0);
  EXPECT_LT(largest(sum(ours, {.axes = {2}}) - 1), 1e-5);
  EXPECT_EQ(share_of_zeros(ours), 0);
}

// In PyTorch a tensor that needs a gradient cannot become an array without being detached first.
TEST(CopyAndReverse, MapsAreReadWithoutDetaching) {
  const Tensor x = randn({1, 5, 128});
  EXPECT_TRUE((plain::MultiHeadAttention{128, 8, 0}(x, x, x).second.requires_grad()));
  nn::Transformer model(tutorial_model());
  const AttentionRecord record;
  EXPECT_TRUE(model.forward(kSource, kTarget).requires_grad());
  const Tensor map = record.weights(kDecoder, 0);
  EXPECT_TRUE(map.requires_grad());  // for losses of the weights
  EXPECT_EQ(static_cast<int64_t>(map.to_vector<float>().size()), map.numel());
}

// Generating with forward() alone runs the decoder over all that has been written, for each symbol again.
TEST(CopyAndReverse, GenerationComputesOneRowForEachSymbol) {
  nn::Transformer model(tutorial_model());
  model.eval();
  const NoGrad no_grad;
  constexpr int64_t kLength = 6;
  std::vector<int64_t> written{1};
  int64_t rows = 0;
  for (int64_t i = 0; i < kLength; ++i) {
    const AttentionRecord record;
    const Tensor logits = model.forward(kSource, nn::Tokens::packed({written}));
    rows += record.weights(kDecoder, 0).size(1);
    written.push_back(argmax(logits.select(0, i), 0).item<int64_t>());
  }
  EXPECT_EQ(rows, kLength * (kLength + 1) / 2);

  const AttentionRecord record;
  nn::greedy_search(model, kSource, {.max_length = kLength, .min_length = kLength - 1});
  EXPECT_EQ(record.weights(kDecoder, 0).shape(),
            (Shape{8, 1, kLength}));  // the last step: one query, six keys
}

// Nothing that begins from a seed differs between runs; from the generator as it stands, everything does.
TEST(CopyAndReverse, ASeedGivesTheSameModel) {
  const nn::Linear first(8, 8), second(8, 8);
  EXPECT_FALSE(array_equal(first.weight, second.weight));
  Generator a(42), b(42);
  nn::Transformer x(tutorial_model(), a), y(tutorial_model(), b);
  for (int64_t i = 0; i < x.parameters().size(); ++i)
    EXPECT_TRUE(array_equal(x.parameters()[i].tensor, y.parameters()[i].tensor)) << x.parameters()[i].name;
}

}  // namespace
}  // namespace heed::test
