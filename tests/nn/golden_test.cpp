// Forward passes, gradients and Adam steps against numbers that PyTorch computed in f64 for models filled by
// rule; on every device the same in f32, against f64.
#include "golden.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/inspection.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>

#include "on_device.h"
#include "op_check.h"

namespace heed::test {
namespace {

double norm_of(const Tensor& x) { return norm(x).item<double>(); }

// ---- one encoder layer, post-norm

struct EncoderLayer512 {
  nn::EncoderLayer layer{plain_layer(512, 8, 2048)};
  Tensor x;
  Segments segments = Segments::dense(4, 20);

  explicit EncoderLayer512(DType dtype = DType::f64, Device device = kCpu)
      : x(golden_input(1000, {4 * 20, 512}).to(dtype).to(device)) {
    move(layer, dtype, device);
    GoldenFill().layer(layer);
  }
  Tensor causal() const { return layer(x, segments, {.visibility = {Causal::top_left}}); }
  // The same rule given as a boolean mask.
  Tensor masked() const {
    const Tensor mask = tril(ones({20, 20})).to(DType::boolean).to(x.device());
    return layer(x, segments, {.mask = Mask::allowed(mask)});
  }
  // Weights, then the output.
  Tensors attention() {
    const AttentionRecord record;
    layer.self_attn.name = "self_attn";
    const Tensor a = layer.self_attn.self(x, segments);
    return {record.weights("self_attn", 0, 0), a};
  }
};

TEST(Golden, RuleOfTheFill) {
  expect_first(golden_input(1, {4}), {0.532603514678, -0.747937959158, 0.401862483741, 0.265752521541},
               "fill");
}

TEST(Golden, EncoderLayer) {
  EncoderLayer512 m;
  EXPECT_EQ(m.layer.parameters().numel(), 3'152'384);
  const Tensor y = m.layer(m.x, m.segments);
  expect_sums(y, -22.9455740741, 41145.0873357);
  expect_first(y, {1.19621960694, -0.42552032184, 1.66276999372, 0.584193389794}, "y");
  check_f32([](DType dtype, Device device) {
    const EncoderLayer512 model(dtype, device);
    return Tensors{model.layer(model.x, model.segments)};
  });
}

TEST(Golden, EncoderLayerCausal) {
  EncoderLayer512 m;
  const Tensor y = m.causal();
  expect_sums(y, -19.5895525679, 41145.3271205);
  expect_first(y, {0.950615123043, -0.991158325392, 2.02120548529, 0.38432173242}, "y");
  EXPECT_LE(max(abs(m.masked() - y)).item<double>(), 1e-12);
  check_f32([](DType dtype, Device device) {
    const EncoderLayer512 model(dtype, device);
    return Tensors{model.causal(), model.masked()};
  });
}

TEST(Golden, AttentionWeightsAndOutput) {
  const Tensors got = EncoderLayer512().attention();
  expect_first(got[0], {0.0601495300301, 0.0407001585785, 0.0485595851019, 0.0573171252335}, "w");
  expect_sums(got[1], -88.1837802394, 263.294037829);
  expect_first(got[1], {0.0303488572762, 0.03543064474, -0.0501830831284, 0.0198648838179}, "a");
  check_f32([](DType dtype, Device device) { return EncoderLayer512(dtype, device).attention(); });
}

// ---- one pre-norm block with bias-free projections and exact GELU

struct PreNormBlock {
  nn::EncoderLayer layer;
  Tensor x;

  static nn::LayerConfig config() {
    nn::LayerConfig c = plain_layer(512, 8, 2048);
    c.norm = nn::NormPlacement::pre;
    c.activation = nn::FeedForwardKind::gelu;
    c.qkv_bias = false;
    return c;
  }
  explicit PreNormBlock(DType dtype = DType::f64, Device device = kCpu) : layer(config()) {
    move(layer, dtype, device);
    GoldenFill().layer(layer);
  }
  Tensor input(uint64_t key, int64_t rows) const {
    return golden_input(key, {rows, 512}).to(layer.norm1.weight.dtype()).to(layer.norm1.weight.device());
  }
  // The output, then weights.
  Tensors forward() {
    const AttentionRecord record;
    layer.self_attn.name = "self_attn";
    const Tensor y = layer(input(1000, 20), Segments::dense(2, 10));
    return {y, record.weights("self_attn", 0, 0)};
  }
  // Norms of the gradients of <y, r>, q, k and v apart.
  std::map<std::string, double> gradient_norms(const Tensor& r) {
    layer.parameters().zero_grad();
    x = input(1001, 5).set_requires_grad();
    sum(layer(x, Segments::dense(1, 5)) * r).backward();
    std::map<std::string, double> norms{{"x", norm_of(x.grad())}};
    for (const nn::GradientNorm& n : nn::gradient_norms(layer)) norms[n.name] = n.gradient;
    return norms;
  }
};

TEST(Golden, PreNormBlock) {
  PreNormBlock m;
  EXPECT_EQ(m.layer.parameters().numel(), 3'150'848);
  const Tensors got = m.forward();
  expect_sums(got[0], -196.122208101, 3985.14153999);
  expect_first(got[0], {0.9971702505, -0.563781624648, 0.845422060146, 0.244864964521}, "y");
  expect_first(got[1], {0.0884721275748, 0.074059864442, 0.111328670793, 0.106355258332}, "w");
  check_f32([](DType dtype, Device device) { return PreNormBlock(dtype, device).forward(); });
}

TEST(Golden, GradientNormsOfThePreNormBlock) {
  PreNormBlock m;
  const auto of_sum = m.gradient_norms(ones({5, 512}, {.dtype = DType::f64}));
  const std::map<std::string, double> want_sum{{"self_attn.in_proj_weight[q]", 108.4781502},
                                               {"self_attn.in_proj_weight[k]", 107.558092416},
                                               {"self_attn.in_proj_weight[v]", 702.259259466},
                                               {"self_attn.out_proj.weight", 694.860799418},
                                               {"self_attn.out_proj.bias", 117.653312021},
                                               {"linear1.weight", 427.975403479},
                                               {"linear1.bias", 34.0451936909},
                                               {"linear2.weight", 999.654648539},
                                               {"linear2.bias", 113.13708499},
                                               {"norm1.weight", 18.2963544077},
                                               {"norm1.bias", 40.5870471914},
                                               {"norm2.weight", 10.5335590327},
                                               {"norm2.bias", 19.4978083388},
                                               {"x", 62.3012951205}};
  for (const auto& want : want_sum) expect_golden(of_sum.at(want.first), want.second, "sum: " + want.first);
  const auto projected = m.gradient_norms(golden_input(1002, {5, 512}));
  const std::map<std::string, double> want_projected{{"self_attn.in_proj_weight[q]", 54.2955018267},
                                                     {"self_attn.in_proj_weight[k]", 54.2141609105},
                                                     {"self_attn.in_proj_weight[v]", 195.994984355},
                                                     {"self_attn.out_proj.weight", 191.535525671},
                                                     {"self_attn.out_proj.bias", 31.5520378215},
                                                     {"linear1.weight", 234.702134462},
                                                     {"linear1.bias", 10.2718200902},
                                                     {"linear2.weight", 454.187474431},
                                                     {"linear2.bias", 29.7964302277},
                                                     {"norm1.weight", 6.01436418382},
                                                     {"norm1.bias", 11.1203095465},
                                                     {"norm2.weight", 6.27393614184},
                                                     {"norm2.bias", 6.00622638791},
                                                     {"x", 31.9336890542}};
  for (const auto& want : want_projected)
    expect_golden(projected.at(want.first), want.second, "projected: " + want.first);
  check_f32([](DType dtype, Device device) {
    PreNormBlock model(dtype, device);
    model.gradient_norms(model.input(1002, 5));
    Tensors gradients{model.x.grad()};
    for (const Parameter& p : model.layer.parameters()) gradients.push_back(p.tensor.grad());
    return gradients;
  });
}

// ---- the sequence-to-sequence model of the copy-and-reverse tutorial

using Sequences = std::vector<std::vector<int64_t>>;

struct CopyReverse {
  nn::Transformer model;
  nn::Tokens source, target;
  Tensor labels;

  static nn::TransformerConfig config() {
    nn::TransformerConfig c;
    static_cast<nn::LayerConfig&>(c) = plain_layer(128, 8, 512);
    c.embedding_dropout = 0;
    c.source_vocabulary = c.target_vocabulary = 20;
    c.encoder_layers = c.decoder_layers = 3;
    return c;
  }
  explicit CopyReverse(DType dtype = DType::f64, Device device = kCpu) : model(config()) {
    move(model, dtype, device);
    GoldenFill().transformer(model);
    Sequences sources, inputs;
    std::vector<int64_t> answers;
    for (const std::vector<int64_t>& s :
         Sequences{{3, 4, 5}, {19, 7, 7, 11, 3, 12, 5, 9, 10, 18}, {6, 13, 17, 8, 4, 15}}) {
      std::vector<int64_t> framed{1}, both{1};
      framed.insert(framed.end(), s.begin(), s.end());
      framed.push_back(2);
      both.insert(both.end(), s.begin(), s.end());
      both.insert(both.end(), s.rbegin(), s.rend());
      sources.push_back(framed);
      inputs.push_back(both);
      answers.insert(answers.end(), both.begin() + 1, both.end());
      answers.push_back(2);
    }
    source = nn::Tokens::packed(sources, device);
    target = nn::Tokens::packed(inputs, device);
    const auto rows = static_cast<int64_t>(answers.size());
    labels = tensor(answers, {rows}).to(device);
  }
  Tensor loss() { return cross_entropy(model.forward(source, target), labels, {.ignore = 0}); }
};

TEST(Golden, CopyReverseForwardAndGradients) {
  CopyReverse m;
  EXPECT_EQ(m.model.parameters().numel(), 1'396'244);
  const Tensor logits = m.model.forward(m.source, m.target);
  expect_first(logits, {0.255777563614, 0.150745914456, -0.46015326712, -0.902084668153}, "logits[0, 0]");
  expect_first(logits.select(0, 7 + 20), {0.760615546906, 0.927581087007, -0.426220301206, -0.51512953522},
               "logits[1, 20]");
  const Tensor loss = m.loss();
  expect_golden(loss.item<double>(), 3.29931332505, "loss");
  loss.backward();
  expect_golden(m.model.parameters().gradient_norm(), 3.32608877774, "gradient norm");
  const auto grad_norm = [&](const char* name) {
    return norm_of(m.model.parameters().find(name)->tensor.grad());
  };
  expect_golden(grad_norm("src_embedding.weight"), 0.313550145218, "src_embedding");
  expect_golden(grad_norm("tgt_embedding.weight"), 1.04095553647, "tgt_embedding");
  expect_golden(grad_norm("decoder.layers.0.norm1.weight"), 0.0721470119392, "norm1");
  expect_golden(grad_norm("generator.bias"), 0.187672995435, "generator bias");
  const Tensor cross = m.model.decoder.layers[2]->multihead_attn.in_proj_weight.grad();
  expect_golden(norm_of(cross.slice(0, 256, 384)), 0.457990388245, "cross v");
  const Tensor self = m.model.encoder.layers[0]->self_attn.in_proj_weight.grad();
  expect_golden(norm_of(self.slice(0, 0, 128)), 0.0186904932944, "self q");
  // Softmax ignores what all keys share, so the key projection's bias has no gradient.
  const Tensor bias = m.model.encoder.layers[0]->self_attn.in_proj_bias.grad();
  EXPECT_LE(norm_of(bias.slice(0, 128, 256)), 1e-14);
  EXPECT_GT(norm_of(bias.slice(0, 0, 128)), 1e-6);
  check_f32(logits_and_gradients<CopyReverse>);
}

// The rows of the tokens: packed, and of a padded batch.
Tensors packed_and_dense(CopyReverse& m) {
  const Tensor packed = m.model.forward(m.source, m.target);
  const std::vector<int32_t> source_lengths{5, 12, 8}, target_lengths{7, 21, 13};
  const Device device = packed.device();
  const auto pad = [](const nn::Tokens& tokens, int64_t width) {
    const Tensor ids = zeros({3, width}, {.dtype = DType::i64});
    const std::vector<int64_t> flat = tokens.ids.to_vector<int64_t>();
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < tokens.segments.query_length(i); ++j)
        ids.data<int64_t>()[i * width + j] = flat[static_cast<size_t>(tokens.segments.query_first(i) + j)];
    return ids;
  };
  const nn::Tokens source = nn::Tokens::dense(pad(m.source, 12), source_lengths);
  const nn::Tokens target = nn::Tokens::dense(pad(m.target, 25), target_lengths);
  const Tensor dense = m.model.forward(on(device, source), on(device, target));
  Tensors rows;
  for (int64_t i = 0; i < 3; ++i)
    rows.push_back(dense.slice(0, 25 * i, 25 * i + target_lengths[static_cast<size_t>(i)]));
  return {packed, cat(rows, 0)};
}

TEST(Golden, CopyReverseDenseEqualsPacked) {
  CopyReverse m;
  const Tensors got = packed_and_dense(m);
  EXPECT_LE(max_difference(got[1], got[0]), 1e-12);
  check_f32([](DType dtype, Device device) {
    CopyReverse each(dtype, device);
    return packed_and_dense(each);
  });
}

Tensors attention_maps(DType dtype, Device device) {
  CopyReverse m(dtype, device);
  const AttentionRecord record;
  m.model.forward(m.source, m.target);
  return {record.weights("encoder.layers.0.self_attn", 0, 0).select(0, 0),
          record.weights("decoder.layers.2.multihead_attn", 0, 7).select(0, 3),
          record.weights("decoder.layers.0.self_attn", 0, 0).select(0, 2)};
}

TEST(Golden, CopyReverseAttentionMaps) {
  const Tensors got = attention_maps(DType::f64, kCpu);
  expect_first(got[0], {0.175504769561, 0.201351761003, 0.240532876508, 0.23825735742, 0.144353235508},
               "encoder");
  expect_first(got[1], {0.325217650556, 0.159619554172, 0.166192916392, 0.153323636832, 0.195646242047},
               "cross");
  expect_first(got[2], {0.394977884314, 0.327295538783, 0.277726576904, 0, 0, 0, 0}, "decoder");
  check_f32(attention_maps);
}

TEST(Golden, CopyReverseGreedyOutput) {
  const auto expect_output = [](DType dtype, Device device) {
    CopyReverse m(dtype, device);
    const nn::Tokens source = nn::Tokens::packed({{1, 3, 4, 5, 2}}, device);
    const nn::Hypothesis h = nn::greedy_search(m.model, source, {.max_length = 12}).front();
    EXPECT_EQ(h.tokens, (std::vector<int64_t>{7, 1, 7, 1, 0, 4, 1, 4, 4, 4, 4, 4})) << dtype << ' ' << device;
    EXPECT_FALSE(h.finished);
  };
  expect_output(DType::f64, kCpu);
  for (const Device device : devices()) expect_output(DType::f32, device);
}

// In f64 alone: in f32 an ulp in one weight decides which units of a ReLU are on, and moves the tenth loss by
// 3e-4.
TEST(Golden, CopyReverseTenAdamSteps) {
  CopyReverse m;
  optim::Adam adam(m.model.parameters(), {.lr = 1e-3});
  const double losses[] = {3.29931332505, 2.65341221788, 2.33492231059,  1.95256806667,  1.53117620209,
                           1.24515558327, 1.02539235659, 0.816258836641, 0.666205876066, 0.55148060041};
  const double norms[] = {3.326088778, 2.031187457, 1.919297377, 1.992109539,  1.826882073,
                          1.491072376, 1.451883999, 1.088402287, 0.9270420282, 0.8231033869};
  for (int i = 0; i < 10; ++i) {
    const Tensor loss = m.loss();
    loss.backward();
    const optim::StepResult step = adam.step({.clip = 1.0});
    EXPECT_NEAR(loss.item<double>(), losses[i], 1e-10) << "loss " << i;
    EXPECT_NEAR(step.gradient_norm(), norms[i], 2e-9) << "norm " << i;
  }
}

}  // namespace
}  // namespace heed::test
