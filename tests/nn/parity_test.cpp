// Layers and whole models against PyTorch: forward, every gradient, and training, in f64 and f32, packed and
// padded, on every device.
#include <tuple>

#include <heed/kernels/embedding.h>
#include <heed/nn/models/transformer.h>

#include "fixture.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::test {
namespace {

constexpr int64_t kWidth = 20, kHeads = 4, kHidden = 28;
const std::vector<int32_t> kSourceLengths{7, 10, 1}, kTargetLengths{8, 3, 5};

// packed: no padding; padded: rows beyond a length are nothing; padded_keys: they are queries but no keys.
enum class Layout { packed, padded, padded_keys };

using Parameter3 = std::tuple<const char*, Layout, DType>;

std::string test_name(const ::testing::TestParamInfo<Parameter3>& info) {
  static const char* const layouts[] = {"packed", "padded", "padded_keys"};
  return concat(std::get<0>(info.param), "_", layouts[static_cast<size_t>(std::get<1>(info.param))], "_",
                std::get<2>(info.param));
}

bool has(const std::string& label, const char* word) { return label.find(word) != std::string::npos; }

template <class Check>
void on_devices(const Parameter3& parameter, Check&& check) {
  const auto [label, layout, dtype] = parameter;
  for (const Device device : devices(dtype)) {
    SCOPED_TRACE(concat("on ", device));
    check(label, layout, dtype, device);
  }
}

// ---- rows of a batch

struct Batch {
  std::vector<int32_t> lengths;
  int64_t width;
  Layout layout;

  int64_t count() const { return static_cast<int64_t>(lengths.size()); }
  // Of the tokens, in the padded batch.
  Tensor valid_dense() const {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < count(); ++i)
      for (int64_t j = 0; j < lengths[static_cast<size_t>(i)]; ++j) rows.push_back(i * width + j);
    return tensor(rows, {static_cast<int64_t>(rows.size())});
  }
  // Of the tokens, in this layout.
  Tensor valid() const { return layout == Layout::packed ? arange(0, valid_dense().numel()) : valid_dense(); }
  // Of what this layout shares with the padded batch.
  Tensor shared() const { return layout == Layout::padded_keys ? arange(0, count() * width) : valid(); }
  Tensor shared_dense() const { return layout == Layout::padded_keys ? shared() : valid_dense(); }
  Tensor input(uint64_t key, DType dtype, Device device) const {
    const Tensor padded = golden_input(key, {count() * width, kWidth});
    const Tensor x = layout == Layout::packed ? index_select(padded, valid_dense()) : padded;
    return x.to(dtype).to(device).set_requires_grad();
  }
  Segments segments() const {
    if (layout == Layout::packed) return Segments::packed(lengths);
    if (layout == Layout::padded) return Segments::dense(count(), width, lengths);
    return Segments::dense(count(), width, width, lengths);
  }
};

Tensor blocked(int64_t rows, int64_t columns) {
  const Tensor hidden = empty({rows, columns}, {.dtype = DType::boolean});
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t row = i / columns, column = i % columns;
    hidden.data<bool>()[i] =
        golden_value(1002, static_cast<uint64_t>(i)) > 0.3 && column != 0 && column != row;
  }
  return hidden;
}

nn::LayerConfig layer_config(bool post_norm) {
  nn::LayerConfig c;
  c.d_model = kWidth;
  c.heads = kHeads;
  c.d_ff = kHidden;
  c.norm = post_norm ? nn::NormPlacement::post : nn::NormPlacement::pre;
  c.attention_dropout = c.activation_dropout = c.residual_dropout = 0;
  return c;
}

// Mean square distance of the tokens' rows from a fixed answer.
std::function<Tensor(const Tensor&)> distance_loss(const Batch& batch, DType dtype, Device device) {
  const Tensor rows = batch.valid().to(device);
  const Tensor padded = golden_input(1001, {batch.count() * batch.width, kWidth});
  const Tensor answer = index_select(padded, batch.valid_dense()).to(dtype).to(device);
  return [rows, answer](const Tensor& output) { return mean(square(index_select(output, rows) - answer)); };
}

Problem layer_problem(nn::Module& module, const Batch& batch, const std::string& label, DType dtype,
                      Device device) {
  Problem p;
  p.module = &module;
  p.post_norm = has(label, "post");
  p.inputs.push_back({"x", batch.input(1000, dtype, device), batch.shared(), batch.shared_dense()});
  p.rows = batch.shared();
  p.dense_rows = batch.shared_dense();
  p.loss = distance_loss(batch, dtype, device);
  return p;
}

// ---- one layer

void check_encoder_layer(const std::string& label, Layout layout, DType dtype, Device device) {
  const Fixture fixture("encoder_layer", label);
  const Batch batch{kSourceLengths, 10, layout};
  nn::EncoderLayer layer(layer_config(has(label, "post")));
  move(layer, dtype, device);
  fill_parameters(layer.parameters(), fixture);
  Problem p = layer_problem(layer, batch, label, dtype, device);
  nn::AttentionCall call;
  if (has(label, "bool")) call.mask = Mask::blocked(blocked(10, 10).to(device));
  if (has(label, "float")) {
    const Tensor bias =
        golden_input(1003, {batch.count(), kHeads, 10, 10}).to(dtype).to(device).set_requires_grad();
    call.mask = Mask::added(bias);
    p.inputs.push_back({"mask", bias, {}, {}});
  }
  const Tensor x = p.inputs[0].value;
  p.output = [&layer, &call, x, segments = batch.segments()] { return layer(x, segments, call); };
  expect_parity(p, fixture, dtype);
}

class EncoderLayerParity : public ::testing::TestWithParam<Parameter3> {};

TEST_P(EncoderLayerParity, WithPyTorch) { on_devices(GetParam(), check_encoder_layer); }

INSTANTIATE_TEST_SUITE_P(All, EncoderLayerParity,
                         ::testing::Combine(::testing::Values("post_none", "post_bool", "post_float",
                                                              "pre_none", "pre_bool", "pre_float"),
                                            ::testing::Values(Layout::packed, Layout::padded,
                                                              Layout::padded_keys),
                                            ::testing::Values(DType::f64, DType::f32)),
                         test_name);

void check_decoder_layer(const std::string& label, Layout layout, DType dtype, Device device) {
  const Fixture fixture("decoder_layer", label);
  const Batch target{kTargetLengths, 8, layout}, source{kSourceLengths, 10, layout};
  nn::DecoderLayer layer(layer_config(has(label, "post")));
  move(layer, dtype, device);
  fill_parameters(layer.parameters(), fixture);
  Problem p = layer_problem(layer, target, label, dtype, device);
  const Tensor x = p.inputs[0].value, memory = source.input(1004, dtype, device);
  p.inputs.push_back({"memory", memory, source.shared(), source.shared_dense()});
  nn::AttentionCall causal{.visibility = {Causal::top_left}}, cross;
  if (has(label, "bool")) cross.mask = Mask::blocked(blocked(8, 10).to(device));
  // What follows a target's end is no key for what stands before it: the lengths matter to padding only.
  const Segments self = layout == Layout::padded_keys ? Segments::dense(3, 8) : target.segments();
  p.output = [&, x, memory, self, both = Segments::cross(self, source.segments())] {
    return layer(x, self, {memory, {}}, both, causal, cross);
  };
  expect_parity(p, fixture, dtype);
}

class DecoderLayerParity : public ::testing::TestWithParam<Parameter3> {};

TEST_P(DecoderLayerParity, WithPyTorch) { on_devices(GetParam(), check_decoder_layer); }

INSTANTIATE_TEST_SUITE_P(
    All, DecoderLayerParity,
    ::testing::Combine(::testing::Values("post_none", "post_bool", "pre_none", "pre_bool"),
                       ::testing::Values(Layout::packed, Layout::padded, Layout::padded_keys),
                       ::testing::Values(DType::f64, DType::f32)),
    test_name);

// ---- the whole model

struct Seq2Seq {
  nn::Transformer model;
  nn::Tokens source, target;
  Tensor labels;
  Problem problem;

  Seq2Seq(const nn::TransformerConfig& config, const Fixture& fixture, Layout layout, DType dtype,
          Device device = kCpu)
      : model(config) {
    move(model, dtype, device);
    fill_parameters(model.parameters(), fixture);
    const int64_t symbols = std::min(config.source_vocabulary, config.target_vocabulary) - 1;
    const Batch source_batch{kSourceLengths, 10, layout}, target_batch{kTargetLengths, 8, layout};
    const auto made = [&](const Batch& batch, auto&& rule) { return on(device, tokens(batch, rule)); };
    source = made(source_batch, [&](int64_t i, int64_t j) { return (7 * i * i + 3 * j + 1) % symbols + 1; });
    target = made(target_batch, [&](int64_t i, int64_t j) { return (5 * j * j + i + 2) % symbols + 1; });
    labels =
        made(target_batch, [&](int64_t i, int64_t j) { return (3 * j * j + 2 * i + 4) % symbols + 1; }).ids;
    problem.module = &model;
    problem.rows = target_batch.valid();
    problem.dense_rows = target_batch.valid_dense();
    problem.post_norm = config.norm == nn::NormPlacement::post;
    problem.output = [this] { return model.forward(source, target); };
    problem.loss = [this](const Tensor& logits) {
      return cross_entropy(logits, labels, {.ignore = kNoToken});
    };
  }

  template <class Rule>
  static nn::Tokens tokens(const Batch& batch, Rule&& rule) {
    const Tensor ids = empty({batch.count(), batch.width}, {.dtype = DType::i64});
    for (int64_t i = 0; i < batch.count(); ++i)
      for (int64_t j = 0; j < batch.width; ++j) ids.data<int64_t>()[i * batch.width + j] = rule(i, j);
    if (batch.layout == Layout::padded) return nn::Tokens::dense(ids, batch.lengths);
    return {index_select(ids.reshape({-1}), batch.valid_dense()), batch.segments()};
  }
};

nn::TransformerConfig model_config(bool post_norm) {
  nn::TransformerConfig c;
  static_cast<nn::LayerConfig&>(c) = layer_config(post_norm);
  c.embedding_dropout = 0;
  c.source_vocabulary = 13;
  c.target_vocabulary = 11;
  c.encoder_layers = c.decoder_layers = 2;
  c.max_length = 12;
  c.relative_limit = 3;
  return c;
}

void check_seq2seq(const std::string& label, Layout layout, DType dtype, Device device) {
  const Fixture fixture("seq2seq", label);
  const Seq2Seq m(model_config(has(label, "post")), fixture, layout, dtype, device);
  expect_parity(m.problem, fixture, dtype);
}

class Seq2SeqParity : public ::testing::TestWithParam<Parameter3> {};

TEST_P(Seq2SeqParity, WithPyTorch) { on_devices(GetParam(), check_seq2seq); }

INSTANTIATE_TEST_SUITE_P(All, Seq2SeqParity,
                         ::testing::Combine(::testing::Values("post", "pre"),
                                            ::testing::Values(Layout::packed, Layout::padded),
                                            ::testing::Values(DType::f64, DType::f32)),
                         test_name);

// Many f32 steps amplify rounding; one from the same parameters and moments does not.
void check_adam_step(bool post, Device device) {
  const Fixture fixture("seq2seq", post ? "post" : "pre");
  const Seq2Seq m(model_config(post), fixture, Layout::packed, DType::f32, device);
  const Parameters parameters = m.problem.module->parameters();
  const optim::AdamOptions options{.lr = 1e-2, .weight_decay = 0.01};
  std::unique_ptr<optim::Optimizer> adam;
  if (post)
    adam = std::make_unique<optim::Adam>(parameters, options);
  else
    adam = std::make_unique<optim::AdamW>(parameters, options);
  auto state = adam->state();
  std::map<std::string, uint64_t> number;
  for (const int64_t i : sorted_by_name(parameters)) number.emplace(parameters[i].name, number.size());
  for (auto& [name, value] : state) {
    if (name.compare(0, 4, "step") == 0) {
      value = tensor(std::vector<int64_t>{10}, value.shape());
    } else if (name[0] == 'm') {
      value = (golden_input(2000 + number.at(name.substr(2)), value.shape()) * 1e-3).to(DType::f32);
    } else {
      value = ((golden_input(3000 + number.at(name.substr(2)), value.shape()) + 1.5) * 1e-6).to(DType::f32);
    }
  }
  adam->load_state(state);
  m.problem.loss_now().backward();
  adam->step();
  for (const Parameter& p : parameters)
    EXPECT_LE(difference(p.tensor, fixture["step/" + p.name]), 1e-6) << p.name;
}

TEST(AdamParity, OneStepFromTheSameStateInF32) {
  for (const Device device : devices())
    for (const bool post : {true, false}) {
      SCOPED_TRACE(concat(post ? "post" : "pre", " on ", device));
      check_adam_step(post, device);
    }
}

// ---- the other activations, positions and options

nn::TransformerConfig variant(const std::string& label) {
  nn::TransformerConfig c =
      model_config(label == "silu_alibi" || label == "gelu_tanh_none" || label == "tied");
  if (label == "gelu_learned") {
    c.activation = nn::FeedForwardKind::gelu;
    c.position = nn::PositionKind::learned;
  } else if (label == "silu_alibi") {
    c.activation = nn::FeedForwardKind::silu;
    c.position = nn::PositionKind::alibi;
  } else if (label == "swiglu_relative") {
    c.activation = nn::FeedForwardKind::swiglu;
    c.position = nn::PositionKind::relative;
  } else if (label == "gelu_tanh_none") {
    c.activation = nn::FeedForwardKind::gelu_tanh;
    c.position = nn::PositionKind::none;
    c.final_norm = true;
  } else if (label == "no_bias") {
    c.qkv_bias = c.out_bias = c.scale_embeddings = false;
    c.final_norm = false;
  } else if (label == "tied") {
    c.source_vocabulary = 11;
    c.tie_generator = c.share_embeddings = true;
  }
  return c;
}

class VariantParity : public ::testing::TestWithParam<const char*> {};

TEST_P(VariantParity, WithPyTorch) {
  const Fixture fixture("seq2seq", GetParam());
  const Seq2Seq m(variant(GetParam()), fixture, Layout::packed, DType::f64);
  const Tensor y = m.problem.output();
  EXPECT_LE(difference(y, tokens_of(fixture["output"], m.problem.dense_rows)), 1e-10);
  const std::vector<double> losses = train(m.problem, fixture);
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], fixture.number("losses", static_cast<int64_t>(i)), 1e-10) << "step " << i;
  check_f32([&](DType dtype, Device device) {
    const Seq2Seq each(variant(GetParam()), fixture, Layout::packed, dtype, device);
    return Tensors{each.problem.output()};
  });
}

INSTANTIATE_TEST_SUITE_P(All, VariantParity,
                         ::testing::Values("gelu_learned", "silu_alibi", "swiglu_relative", "gelu_tanh_none",
                                           "no_bias", "tied"));

}  // namespace
}  // namespace heed::test
