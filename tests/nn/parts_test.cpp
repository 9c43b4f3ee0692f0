// Parts of a model: loaded, initialised, shown, moved, frozen and trained by themselves, before and after the
// whole.
#include <memory>

#include <gtest/gtest.h>

#include <heed/core/base/warning.h>
#include <heed/core/ops.h>
#include <heed/core/serialize.h>
#include <heed/nn/init.h>
#include <heed/nn/inspection.h>
#include <heed/nn/layers/layer_norm.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/models/transformer.h>
#include <heed/nn/parameter.h>
#include <heed/nn/summary.h>
#include <heed/nn/weights.h>
#include <heed/optim/adam.h>
#include <heed/optim/sgd.h>

#include "each_device.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace heed::nn {
namespace {

struct Body : Module {
  Linear first{8, 8}, second{8, 8};
  void visit(Visitor& v) override {
    v("first", first);
    v("second", second);
  }
  std::string describe() const override { return "Body"; }
};

struct Net : Module {
  Body body;
  std::unique_ptr<Linear> head = std::make_unique<Linear>(8, 3);
  std::unique_ptr<Linear> late;
  void visit(Visitor& v) override {
    v("body", body);
    v("head", *head);
    if (late) v("late", *late);
  }
  std::string describe() const override { return "Net"; }
  Tensor operator()(const Tensor& x) const { return (*head)(body.second(body.first(x))); }
};

class PartsOn : public test::EachDevice {};
HEED_ON_EACH_DEVICE(PartsOn);

// Everything that only needs names and tensors leaves them where they are.
TEST(Parts, WhatNeedsNoArenaPacksNothing) {
  const test::TemporaryFolder folder;
  Net net, other;
  const auto* const place = net.body.first.weight.raw_data();
  initialize(net.body, matrix_rules(Initializer::normal));
  initialize(net, {{"head.*", Initializer::zeros}});
  save_weights(net.body, folder.file("body"));
  load_weights(net.body, folder.file("body"));
  EXPECT_NE(parameter_table(net.body).find("first.weight"), std::string::npos);
  EXPECT_NE(component_table(net).find("171"), std::string::npos);
  EXPECT_EQ(count_parameters(net).size(), 2u);
  EXPECT_EQ(gradient_norms(net.body).size(), 4u);
  net.body.set_requires_grad(false);
  EXPECT_EQ(net.body.first.weight.raw_data(), place);
  EXPECT_EQ(net.parameters().size(), 6);
  EXPECT_EQ(net.body.parameters().size(), 4);
}

TEST_P(PartsOn, PartFirstAndWholeLater) {
  const test::TemporaryFolder folder;
  Net net, trained;
  save_weights(trained.body, folder.file("body"));
  load_weights(net.body, folder.file("body"));
  EXPECT_TRUE(array_equal(net.body.second.weight.detach(), trained.body.second.weight.detach()));
  net.body.parameters();
  net.body.to(device());
  net.to(device());
  net.to(DType::bf16);
  net.body.to(DType::f32);
  net.to(DType::f32);
  optim::AdamW adam(net.parameters(), {.lr = 0.01});
  const Tensor before = net.body.first.weight.detach().clone();
  sum(square(net(ones({2, 8}, {.device = device()})))).backward();
  adam.step({.clip = 1});
  EXPECT_FALSE(array_equal(before, net.body.first.weight.detach()));
  EXPECT_THROW(net.body.to(DType::bf16), StateError);
  EXPECT_THROW(net.to(DType::bf16), StateError);
}

TEST_P(PartsOn, WholeFirstAndPartLater) {
  Net net;
  net.to(device());
  optim::Adam head(net.head->parameters(), {.lr = 0.01});
  net.body.set_requires_grad(false);
  EXPECT_EQ(net.parameters().numel(), 171);
  const Tensor body = net.body.first.weight.detach().clone(), before = net.head->weight.detach().clone();
  sum(square(net(ones({2, 8}, {.device = device()})))).backward();
  head.step();
  EXPECT_TRUE(array_equal(body, net.body.first.weight.detach()));
  EXPECT_FALSE(array_equal(before, net.head->weight.detach()));
  net.body.to(DType::bf16);
  EXPECT_EQ(net.body.parameters().dtype(), DType::bf16);
}

// ---- what a module forgot to list

struct Forgetful : Module {
  Linear listed{4, 4};
  Tensor forgotten = ones({4}).set_requires_grad();
  void visit(Visitor& v) override { v("listed", listed); }
};

std::string heard;

TEST(Parts, AParameterThatNoListHasIsReported) {
  const WarningHandler before = set_warning_handler([](const std::string& text) { heard += text; });
  Forgetful module;
  optim::Adam adam(module.parameters(), {.lr = 0.01});
  const Tensor x = ones({2, 4}).set_requires_grad();
  for (int step = 0; step < 3; ++step) {
    sum(module.listed(x) * module.forgotten).backward();
    EXPECT_EQ(heard.empty(), step == 0) << heard;  // what comes once may be meant
    adam.step();
    x.zero_grad();
  }
  set_warning_handler(before);
  EXPECT_EQ(
      heard,
      "backward: a tensor of shape [4] that requires a gradient still holds that of a step before, since "
      "no parameters() has it: no optimizer trains it. List it in its module's visit(), or call its "
      "zero_grad()");
}

// Of a class in an unnamed namespace, without its namespaces.
TEST(Parts, AModuleIsDescribedByItsName) {
  EXPECT_EQ(Forgetful().describe(), "Forgetful");
  EXPECT_EQ(module_tree(*std::make_unique<Forgetful>()), "Forgetful\n  listed: Linear(4, 4)");
}

// ---- files

class PartFiles : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::string file_ = folder_.file("weights");
};

TEST_F(PartFiles, APrefixIsAddedAndTakenAway) {
  Net a, b;
  save_weights(a, file_, {.prefix = "net.", .metadata = {{"format", "pt"}, {"by", "me"}}});
  EXPECT_EQ(load_tensors(file_).size(), 6u);
  EXPECT_THROW(load_weights(b, file_), CheckpointError);
  const LoadReport whole = load_weights(b, file_, {.prefix = "net."});
  EXPECT_TRUE(whole.missing.empty() && whole.unexpected.empty());
  EXPECT_TRUE(array_equal(a.head->weight.detach(), b.head->weight.detach()));
  Net c;
  load_weights(c.body, file_, {.prefix = "net.body."});  // the head's tensors are not its affair
  EXPECT_TRUE(array_equal(a.body.second.bias.detach(), c.body.second.bias.detach()));
  EXPECT_FALSE(array_equal(a.head->weight.detach(), c.head->weight.detach()));
}

TEST_F(PartFiles, WhatIsMissingOrTooMuchUnderAPrefix) {
  Net net;
  Body body;
  save_weights(net, file_);
  test::expect_error<CheckpointError>(
      [&] { load_weights(body, file_, {.prefix = "bdy."}); },
      {"no tensor has a name that begins with 'bdy.'", "'body.first.weight'"});
  EXPECT_THROW(load_weights(body, file_, {.strict = false, .prefix = "bdy."}), CheckpointError);
  test::expect_error<CheckpointError>([&] { load_weights(net, file_, {.prefix = "body."}); },
                                      {"missing", "body.head.weight", "unexpected", "body.first.weight"});
  const LoadReport report = load_weights(body, file_, {.strict = false, .prefix = "head."});
  EXPECT_EQ(report.missing.size(), 4u);
  EXPECT_EQ(report.missing[0], "first.weight");
  EXPECT_EQ(report.unexpected, (std::vector<std::string>{"head.bias", "head.weight"}));
}

// ---- names

TEST(Names, InitialisersNeedWhatTheyName) {
  Net net;
  const Tensor before = net.head->weight.detach().clone();
  test::expect_error<ConfigError>(
      [&] {
        initialize(net, {{"head.*", Initializer::zeros}, {"*nrom*", Initializer::zeros}});
      },
      {"initialize: the pattern '*nrom*' fits none of the 6 parameters"});
  test::expect_error<ShapeError>(
      [&] {
        initialize(net, {{"*weight", Initializer::zeros}, {"*", Initializer::xavier_uniform}});
      },
      {"'body.first.bias' [8] is no matrix"});
  test::expect_error<ConfigError>(
      [&] {
        initialize(net, {{"*bias", Initializer::zeros}, {"*weight", Initializer::normal, -1}});
      },
      {"the deviation for '*weight' must be finite and not negative, got -1"});
  EXPECT_TRUE(array_equal(before, net.head->weight.detach())) << "nothing has changed";
  initialize(net, {{.pattern = "*nrom*", .optional = true}});
}

TEST(Names, FreezingNeedsWhatItNames) {
  Net net;
  test::expect_error<ConfigError>([&] { net.set_requires_grad(false, "haed.*"); },
                                  {"the pattern 'haed.*' fits none of the 6 parameters"});
  net.set_requires_grad(false, "*.bias");
  EXPECT_TRUE(net.head->weight.requires_grad());
  EXPECT_FALSE(net.head->bias.requires_grad());
  EXPECT_NE(parameter_table(net).find("head.bias (frozen)"), std::string::npos);
  net.set_requires_grad(true);
  EXPECT_TRUE(net.head->bias.requires_grad());
  net.body.set_requires_grad(false);
  const Tensor loss = sum(square(net(ones({2, 8}))));
  loss.backward();
  EXPECT_EQ(net.parameters().with_gradient(), (PooledVector<int64_t>{4, 5}));
}

// ---- parts that come late

TEST(Late, APartThatCameAfterTheFirstListIsInTheNext) {
  Net net;
  EXPECT_EQ(net.parameters().size(), 6);
  net.late = std::make_unique<Linear>(3, 2);
  EXPECT_EQ(net.parameters().size(), 8);
  net.to(DType::f64);
  EXPECT_EQ(net.late->weight.dtype(), DType::f64);
  net.head = std::make_unique<Linear>(8, 4);  // another in its place
  net.to(DType::f64);
  EXPECT_EQ(net.head->weight.dtype(), DType::f64);
}

TEST(Late, APartThatTheOptimizerMissesIsAnError) {
  Net net;
  optim::Adam adam(net.parameters());
  net.late = std::make_unique<Linear>(3, 2);
  test::expect_error<StateError>([&] { net.parameters(); }, {"'late.weight' was made after the optimizer"});
  net.late->set_requires_grad(false);
  EXPECT_EQ(net.parameters().size(), 8) << "nothing trains a frozen one";
  net.late = std::make_unique<Linear>(3, 2);
  optim::Adam another(net.late->parameters());
  EXPECT_EQ(net.parameters().size(), 8);
}

TEST(Late, AnOptimizerHoldsThemAsLongAsItLives) {
  Net net;
  {
    const optim::Adam adam(net.parameters());
    EXPECT_THROW(net.to(DType::bf16), StateError);
    {
      const optim::Sgd part(net.head->parameters(), {.lr = 0.1});
      EXPECT_THROW(net.head->to(DType::bf16), StateError);
    }
    EXPECT_THROW(net.head->to(DType::bf16), StateError) << "Adam holds it still";
    EXPECT_THROW(optim::Adam(net.parameters(), {.groups = {{.patterns = {"none*"}}}}), ConfigError);
    EXPECT_THROW(optim::Adam(net.parameters(), {.beta1 = 2}), ConfigError);
    EXPECT_THROW(net.to(DType::bf16), StateError) << "optimizers that could not be made release nothing";
  }
  net.to(DType::bf16);
  EXPECT_EQ(net.head->weight.dtype(), DType::bf16);
  net.late = std::make_unique<Linear>(3, 2);
  net.late->to(DType::bf16);
  EXPECT_EQ(net.parameters().size(), 8) << "a part may come when no optimizer would miss it";
  optim::Adam adam(net.parameters());
  EXPECT_THROW(net.to(DType::f32), StateError);
}

TransformerConfig config_of(PositionKind position, FeedForwardKind activation) {
  TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = 9;
  config.d_model = 8, config.heads = 2, config.d_ff = 12, config.max_length = 5;
  config.encoder_layers = 2, config.decoder_layers = 1;
  config.position = position, config.activation = activation;
  config.tie_generator = true;
  return config;
}

TEST(ShapesOnly, AModelHasTheNamesAndShapesOfARealOne) {
  for (const PositionKind position :
       {PositionKind::sinusoidal, PositionKind::learned, PositionKind::relative, PositionKind::alibi}) {
    const TransformerConfig config = config_of(position, FeedForwardKind::swiglu);
    Transformer real(config);
    const test::TemporaryFolder folder;
    const std::string file = folder.file("w.safetensors");
    save_weights(real, file);
    const ShapesOnly shapes_only;
    Transformer shapes(config);
    EXPECT_EQ(parameter_table(shapes), parameter_table(real));
    EXPECT_EQ(component_table(shapes), component_table(real));
    EXPECT_EQ(module_tree(shapes), module_tree(real));
    EXPECT_NO_THROW(check_weights(shapes, file));
    TransformerConfig other = config;
    other.d_ff = 16;
    Transformer wider(other);
    test::expect_error<CheckpointError>([&] { check_weights(wider, file); },
                                        {"w.safetensors", "linear1.weight", "[16, 8]"});
    other.encoder_layers = 3;
    Transformer deeper(other);
    test::expect_error<CheckpointError>([&] { check_weights(deeper, file); },
                                        {"encoder.layers.2.norm1.weight"});
  }
}

TEST(ShapesOnly, SizesCostNoMemory) {
  TransformerConfig config = config_of(PositionKind::learned, FeedForwardKind::relu);
  config.d_model = 1 << 20, config.d_ff = 1 << 20, config.max_length = 1 << 20;
  config.source_vocabulary = config.target_vocabulary = 1 << 24;
  const ShapesOnly shapes_only;
  Transformer shapes(config);
  int64_t parameters = 0;
  for (const ComponentCount& count : count_parameters(shapes)) parameters += count.parameters;
  EXPECT_GT(parameters, int64_t{1} << 44);
}

TEST(ShapesOnly, EndsWithItsScope) {
  { const ShapesOnly shapes_only; }
  Linear real(3, 2);
  EXPECT_EQ(real.weight.strides(), (Shape{3, 1}));
}

}  // namespace
}  // namespace heed::nn
