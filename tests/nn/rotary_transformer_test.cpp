// Rotary positions of the sequence-to-sequence model against the plain formula: queries and keys turned pair
// by pair, then softmax(q kᵀ / √width) v.
#include <cmath>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/autograd/autograd.h>
#include <heed/core/ops.h>
#include <heed/nn/models/transformer.h>

namespace heed::nn {
namespace {

constexpr int64_t kModel = 12, kHeads = 2, kWidth = kModel / kHeads;

TransformerConfig rotary_config() {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 9;
  config.d_model = kModel;
  config.heads = kHeads;
  config.d_ff = 16;
  config.encoder_layers = config.decoder_layers = 1;
  config.norm = NormPlacement::pre;
  config.position = PositionKind::rotary;
  return config;
}

// Columns i and i + width / 2 of a head are a point, turned by position / 10000^(2 i / width).
void turn(double* head, int64_t position) {
  for (int64_t i = 0; i < kWidth / 2; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(i) / kWidth);
    double &x = head[i], &y = head[i + kWidth / 2];
    const double turned = x * std::cos(angle) - y * std::sin(angle);
    y = x * std::sin(angle) + y * std::cos(angle);
    x = turned;
  }
}

// qkv [rows, 3 kModel] of sequences of these lengths → what attention gives, [rows, kModel].
Tensor plain_attention(const Tensor& qkv, std::span<const int64_t> lengths, bool causal) {
  std::vector<double> x = qkv.to_vector<double>(), out(static_cast<size_t>(qkv.size(0) * kModel));
  int64_t first = 0;
  for (const int64_t length : lengths) {
    for (int64_t row = 0; row < length; ++row)
      for (int64_t h = 0; h < 2 * kHeads; ++h)
        turn(&x[static_cast<size_t>((first + row) * 3 * kModel + h * kWidth)], row);
    for (int64_t row = 0; row < length; ++row)
      for (int64_t h = 0; h < kHeads; ++h) {
        const auto part = [&](int64_t at, int64_t kind) {
          return &x[static_cast<size_t>((first + at) * 3 * kModel + kind * kModel + h * kWidth)];
        };
        const int64_t keys = causal ? row + 1 : length;
        std::vector<double> weights;
        double total = 0;
        for (int64_t key = 0; key < keys; ++key) {
          double score = 0;
          for (int64_t i = 0; i < kWidth; ++i) score += part(row, 0)[i] * part(key, 1)[i];
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(kWidth))));
          total += weights.back();
        }
        double* const y = &out[static_cast<size_t>((first + row) * kModel + h * kWidth)];
        for (int64_t key = 0; key < keys; ++key)
          for (int64_t i = 0; i < kWidth; ++i)
            y[i] += weights[static_cast<size_t>(key)] / total * part(key, 2)[i];
      }
    first += length;
  }
  return tensor(out, {qkv.size(0), kModel});
}

double distance(const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<double>(); }

TEST(RotaryTransformer, IsThePlainFormula) {
  Generator generator(3);
  Transformer model(rotary_config(), generator);
  model.to(DType::f64);
  model.eval();
  const NoGrad no_grad;
  const Tokens source = Tokens::packed({{1, 3, 4, 7, 2}, {1, 5, 2}}),
               target = Tokens::packed({{1, 4, 3}, {1, 5, 6, 3}});
  const double scale = std::sqrt(static_cast<double>(kModel));
  const std::vector<int64_t> source_lengths{5, 3}, target_lengths{3, 4};

  const EncoderLayer& encoder = *model.encoder.layers[0];
  const Tensor x = model.src_embedding(source.ids) * scale;
  const Tensor a = x + encoder.self_attn.out_proj(plain_attention(
                           encoder.self_attn.project_qkv(encoder.norm1(x)), source_lengths, false));
  const Tensor memory = (*model.encoder.norm)(a + encoder.feed_forward(encoder.norm2(a)));
  EXPECT_LT(distance(model.encode(source), memory), 1e-12);

  const DecoderLayer& decoder = *model.decoder.layers[0];
  const Tensor y = model.tgt_embedding(target.ids) * scale;
  const Tensor b = y + decoder.self_attn.out_proj(plain_attention(
                           decoder.self_attn.project_qkv(decoder.norm1(y)), target_lengths, true));
  const Tensor c = b + decoder.multihead_attn.cross(decoder.norm2(b), memory,
                                                    Segments::cross(target.segments, source.segments));
  const Tensor states = (*model.decoder.norm)(c + decoder.feed_forward(decoder.norm3(c)));
  EXPECT_LT(distance(model.forward(source, target), model.logits(states)), 1e-12);
}

}  // namespace
}  // namespace heed::nn
