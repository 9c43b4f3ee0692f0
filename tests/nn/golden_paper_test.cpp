// The models of two more tutorials, on the paper and on attention, against numbers that PyTorch and NumPy
// computed; on every device the same in f32, against f64.
#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>

#include "golden.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::test {
namespace {

// ---- the pre-norm copy model

struct CopyModel {
  nn::Transformer model;
  nn::Tokens source, target;

  static nn::TransformerConfig config() {
    nn::TransformerConfig c;
    static_cast<nn::LayerConfig&>(c) = plain_layer(128, 4, 512);
    c.embedding_dropout = 0;
    c.norm = nn::NormPlacement::pre;
    c.source_vocabulary = c.target_vocabulary = 100;
    c.encoder_layers = c.decoder_layers = 2;
    return c;
  }
  explicit CopyModel(DType dtype = DType::f64, Device device = kCpu) : model(config()) {
    move(model, dtype, device);
    GoldenFill().transformer(model);
    source = nn::Tokens::packed(
        {{3, 14, 15, 92, 65, 35, 89, 79, 32, 38}, {46, 26, 43, 38, 32, 79, 50, 28, 84, 19}}, device);
    target = nn::Tokens::packed(
        {{1, 3, 14, 15, 92, 65, 35, 89, 79, 32}, {1, 46, 26, 43, 38, 32, 79, 50, 28, 84}}, device);
  }
  Tensor loss() { return cross_entropy(model.forward(source, target), source.ids); }
};

TEST(GoldenPaper, ParameterCounts) {
  CopyModel m;
  EXPECT_EQ(m.model.parameters().numel(), 964'708);
}

TEST(GoldenPaper, CopyModelForwardAndGradients) {
  CopyModel m;
  const Tensor logits = m.model.forward(m.source, m.target);
  expect_first(logits, {1.02448055534, 0.413801734215, 0.828840885086, 0.311267482301}, "logits[0, 0]");
  expect_first(logits.select(0, 19), {0.68777446807, -0.306780440035, 0.855031203066, 1.5556448167},
               "logits[1, 9]");
  const Tensor loss = m.loss();
  expect_golden(loss.item<double>(), 4.75566284369, "loss");
  loss.backward();
  expect_golden(m.model.parameters().gradient_norm(), 4.37606950077, "gradient norm");
  check_f32(logits_and_gradients<CopyModel>);
}

TEST(GoldenPaper, CopyModelTenAdamSteps) {
  CopyModel m;
  optim::Adam adam(m.model.parameters(), {.lr = 1e-3});
  const double losses[] = {4.75566284369, 3.53113646895, 2.95687470032,  2.51459371321,  2.02613391034,
                           1.51981608199, 1.10865329667, 0.810918302845, 0.594838460008, 0.450746412441};
  for (int i = 0; i < 10; ++i) {
    const Tensor loss = m.loss();
    EXPECT_NEAR(loss.item<double>(), losses[i], 1e-10) << "loss " << i;
    loss.backward();
    adam.step();
  }
}

// q, k and v are PyTorch's first normal numbers of seed 42; it computed in f32.
TEST(GoldenPaper, ScaledDotProductAttention) {
  const Tensor q =
      tensor(std::vector<float>{1.92691529f,   1.48728406f,    0.900717199f,  -2.10552096f,  0.678418458f,
                                -1.23454487f,  -0.0430674776f, -1.60466695f,  -0.752135277f, 1.64872301f,
                                -0.392478645f, -1.40360713f,   -0.727881312f, -0.559430182f, -0.768838882f,
                                0.76244539f,   1.64231694f,    -0.159597471f, -0.497397542f, 0.439589262f,
                                -0.758131146f, 1.07831764f,    0.800800562f,  1.68062055f,   1.27912438f,
                                1.29642284f,   0.61046648f,    1.33473778f,   -0.23162432f,  0.041759491f,
                                -0.251575291f, 0.859858513f},
             {4, 8});
  const Tensor k =
      tensor(std::vector<float>{-1.38467371f,  -0.871236145f,  -0.223365918f, 1.71736145f,    0.31888032f,
                                -0.424518973f, 0.305720925f,   -0.774592519f, -1.55757248f,   0.995636106f,
                                -0.879785836f, -0.601142049f,  -1.27415121f,  2.12278509f,    -1.23465312f,
                                -0.487913877f, -0.913823009f,  -0.658137262f, 0.0780238733f,  0.525808752f,
                                -0.48799172f,  1.19136906f,    -0.81400764f,  -0.735992789f,  -1.40324783f,
                                0.0360036679f, -0.0634772703f, 0.675614893f,  -0.0978068933f, 1.844594f,
                                -1.18453741f,  1.38354933f},
             {4, 8});
  const Tensor v =
      tensor(std::vector<float>{1.44513381f,   0.85641253f,   2.21807575f,   0.523165524f,  0.346646667f,
                                -0.197331443f, -1.05458891f,  1.27799559f,   -0.17219013f,  0.523788452f,
                                0.0566218197f, 0.426296145f,  0.575005054f,  -0.64172411f,  -2.20639849f,
                                -0.750803053f, 0.0108681442f, -0.338742346f, -1.34067953f,  -0.585370541f,
                                0.536188126f,  0.524622619f,  1.14120162f,   0.0516435951f, 0.743951976f,
                                -0.4815844f,   -1.04946613f,  0.603898823f,  -1.72229505f,  -0.827768862f,
                                1.33470297f,   0.483539283f},
             {4, 8});
  const auto expect_near = [](const Tensor& got, const std::vector<double>& want) {
    const std::vector<float> values = got.reshape({got.numel()}).to_vector<float>();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], 5e-7) << i;
  };
  for (const Device device : devices()) {
    SCOPED_TRACE(concat("on ", device));
    const AttentionRecord record;
    const Tensor out =
        attention(q.to(device), k.to(device), v.to(device), Segments::dense(1, 4), {.name = "a"});
    expect_near(record.weights("a", 0, 0), {0.194240048528, 0.410234689713, 0.324157476425, 0.0713677033782,
                                            0.0407520644367, 0.655548155308, 0.0863853991032, 0.217314332724,
                                            0.104051508009, 0.205739200115, 0.182417914271, 0.507791399956,
                                            0.1926368922, 0.180323064327, 0.195475667715, 0.431564360857});
    expect_near(out, {0.26668164134, 0.237050369382, -0.0554219037294, 0.129847809672, 0.354112833738,
                      -0.190602779388, -0.644800901413, -0.00851778313518});
  }
}

// ---- the block and the model of the tutorial on attention

TEST(GoldenAttention, Block) {
  nn::EncoderLayer layer(plain_layer(64, 8, 256));
  EXPECT_EQ(layer.parameters().numel(), 49'984);
  const auto output = [&](DType dtype, Device device) {
    move(layer, dtype, device);
    GoldenFill().packed_layer(layer);
    return Tensors{layer(golden_input(1000, {20, 64}).to(dtype).to(device), Segments::dense(2, 10))};
  };
  const Tensor y = output(DType::f64, kCpu)[0];
  expect_sums(y, -0.743888963074, 1288.87652136);
  expect_first(y, {1.69170685399, -0.614366376707, 1.11654150337, 0.0737093072963}, "y");
  expect_first(y.select(0, 19).slice(0, 62, 64), {-1.08157935113, 0.668617750365}, "last of y");
  check_f32(output);
}

// Embeddings with sinusoidal positions, encoder layers, and a linear layer: assembled as a user would.
struct TokenModel {
  nn::Embedding embedding{1000, 64};
  nn::Encoder encoder{plain_layer(64, 4, 256), 2, false};
  nn::Linear output{64, 1000};
  Tensor ids = empty({2, 20}, {.dtype = DType::i64});

  explicit TokenModel(DType dtype = DType::f64, Device device = kCpu) {
    for (nn::Module* part : std::initializer_list<nn::Module*>{&embedding, &encoder, &output})
      move(*part, dtype, device);
    GoldenFill fill;
    fill.embedding(embedding);
    for (const auto& layer : encoder.layers) fill.packed_layer(*layer);
    fill.linear(output);
    for (int64_t i = 0; i < 20; ++i) {
      ids.data<int64_t>()[i] = (7 * i * i + 3 * i + 1) % 1000;
      ids.data<int64_t>()[20 + i] = (11 * i * i + 5 * i + 2) % 1000;
    }
  }
  Tensor logits(const nn::AttentionCall& call) const {
    const Device device = embedding.weight.device();
    const nn::Tokens tokens = on(device, nn::Tokens::dense(ids));
    const Tensor position = nn::sinusoidal_table(20, 64).to(embedding.weight.dtype()).to(device);
    const Tensor x = embedding(
        tokens.ids,
        {.scale = 8, .position = position, .position_ids = nn::position_ids(tokens.segments, 40, device)});
    return output(encoder(x, tokens.segments, call));
  }
};

TEST(GoldenAttention, Model) {
  TokenModel m;
  EXPECT_EQ(m.embedding.parameters().numel() + m.encoder.parameters().numel() + m.output.parameters().numel(),
            228'968);
  const Tensor y = m.logits({});
  expect_sums(y, 938.375548345, 13677.5907039);
  expect_first(y, {1.17066010661, 0.859922572405, -0.626738936173, 0.0909911786257}, "y");
  expect_first(y.select(0, 39).slice(0, 998, 1000), {0.222173937436, -1.06769828138}, "last of y");
  check_f32([](DType dtype, Device device) { return Tensors{TokenModel(dtype, device).logits({})}; });
}

TEST(GoldenAttention, ModelWithPyTorchsKindOfMask) {
  const TokenModel m;
  const Tensor hidden = triu(ones({20, 20}), 1).to(DType::boolean);
  for (const nn::AttentionCall& call : {nn::AttentionCall{.mask = Mask::blocked(hidden)},
                                        nn::AttentionCall{.visibility = {Causal::top_left}}}) {
    const Tensor y = m.logits(call);
    expect_sums(y, 960.237047857, 13589.7459115);
    expect_first(y, {0.866749983905, 0.690871048059, -1.06746978624, -0.307577581923}, "y");
    expect_first(y.select(0, 39).slice(0, 998, 1000), {0.219438757407, -1.06669210531}, "last of y");
  }
  check_f32([&](DType dtype, Device device) {
    const TokenModel each(dtype, device);
    return Tensors{each.logits({.mask = Mask::blocked(hidden.to(device))}),
                   each.logits({.visibility = {Causal::top_left}})};
  });
}

// "The cat sat": NumPy's normal numbers of seed 42.
struct TheCatSat {
  Tensor embeddings =
      tensor(std::vector<double>{0.4967141530112327, -0.13826430117118466, 0.6476885381006925,
                                 1.5230298564080254, -0.23415337472333597, -0.23413695694918055,
                                 1.5792128155073915, 0.7674347291529088, -0.4694743859349521,
                                 0.5425600435859647, -0.46341769281246226, -0.46572975357025687},
             {3, 4});
  Tensor q = times({0.24196227156603412, -1.913280244657798, -1.7249178325130328, -0.5622875292409727,
                    -1.0128311203344238, 0.3142473325952739, -0.9080240755212109, -1.4123037013352915,
                    1.465648768921554, -0.22577630048653566, 0.06752820468792384, -1.4247481862134568,
                    -0.5443827245251827, 0.11092258970986608, -1.1509935774223028, 0.37569801834567196});
  Tensor k = times({-0.600638689918805, -0.2916937497932768, -0.6017066122293969, 1.8522781845089378,
                    -0.013497224737933921, -1.0577109289559004, 0.822544912103189, -1.2208436499710222,
                    0.2088635950047554, -1.9596701238797756, -1.3281860488984305, 0.19686123586912352,
                    0.7384665799954104, 0.1713682811899705, -0.11564828238824053, -0.3011036955892888});
  Tensor v = times({-1.4785219903674274, -0.7198442083947086, -0.4606387709597875, 1.0571222262189157,
                    0.3436182895684614, -1.763040155362734, 0.324083969394795, -0.38508228041631654,
                    -0.6769220003059587, 0.6116762888408679, 1.030999522495951, 0.9312801191161986,
                    -0.8392175232226385, -0.3092123758512146, 0.33126343140356396, 0.9755451271223592});

  Tensor times(const std::vector<double>& weight) const { return matmul(embeddings, tensor(weight, {4, 4})); }
  Tensors weights_and_outputs(const AttentionOptions& options, DType dtype, Device device) const {
    const AttentionRecord record;
    AttentionOptions named = options;
    named.name = "a";
    const auto there = [&](const Tensor& x) { return x.to(dtype).to(device); };
    const Tensor out = attention(there(q), there(k), there(v), Segments::dense(1, 3), named);
    return {record.weights("a", 0, 0), out};
  }
  void expect(const AttentionOptions& options, const std::vector<double>& weights,
              const std::vector<double>& outputs, double tolerance = 1e-14) const {
    const Tensors got = weights_and_outputs(options, DType::f64, kCpu);
    const std::vector<double> w = got[0].reshape({9}).to_vector<double>();
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(w[i], weights[i], tolerance) << i;
    const std::vector<double> o = got[1].reshape({12}).to_vector<double>();
    for (size_t i = 0; i < outputs.size(); ++i) EXPECT_NEAR(o[i], outputs[i], tolerance) << i;
    check_f32([&](DType dtype, Device device) { return weights_and_outputs(options, dtype, device); });
  }
};

TEST(GoldenAttention, TheCatSat) {
  TheCatSat().expect(
      {},
      {0.12387964169205962, 0.8735648533027923, 0.00255550500514815, 0.22783694342758484, 0.4486571280545068,
       0.3235059285179084, 0.06856475410896386, 0.019081742211736287, 0.9123535036792999},
      {-1.5697742787324036, 1.1190863934015864, 1.7830414263802847, 2.1276392999058507, -0.7058010756971619,
       0.2995504941766697, 0.9860160489249898, 1.0180933980212814, 1.2472526682171676, -0.6795486309168818,
       -0.12079004639482492, -1.2294480561968673});
}

TEST(GoldenAttention, TheCatSatWithoutScaleAndCausal) {
  const TheCatSat sentence;
  sentence.expect({.scale = 1}, {0.019713, 0.980278, 8e-06, 0.145056, 0.562493, 0.292451}, {}, 5e-7);
  sentence.expect({.visibility = {Causal::top_left}},
                  {1, 0, 0, 0.3367907466334924, 0.6632092533665076, 0, 0.06856475410896386,
                   0.019081742211736287, 0.9123535036792999},
                  {-2.4985009055058964, -0.1885552503369148, 0.8986756293611332, 2.6672945174141707,
                   -1.8013356647557468, 0.8053094289318093, 1.5722940709803965, 2.2658509377402414});
}

TEST(GoldenAttention, PositionTable) {
  const Tensor table = nn::sinusoidal_table(100, 128);
  expect_first(table.select(0, 1),
               {0.8414709848078965, 0.5403023058681398, 0.761720408471602, 0.6479058722668407}, "position 1");
  expect_first(table.select(0, 50).slice(0, 2, 6),
               {-0.6319610395935535, 0.7750001577005227, -0.202981034508031, 0.9791826691838706},
               "position 50");
  expect_golden(sum(table.slice(0, 0, 50)).item<double>(), 2506.7478237890655, "50 x 128");
  expect_golden(sum(table).item<double>(), 4526.21878168712, "100 x 128");
  expect_golden(sum(nn::sinusoidal_table(5000, 512)).item<double>(), 338868.1473577612, "5000 x 512");
}

}  // namespace
}  // namespace heed::test
