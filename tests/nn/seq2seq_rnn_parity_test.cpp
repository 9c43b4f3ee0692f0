// The recurrent sequence-to-sequence model against PyTorch, in f64 and in f32 on every device; decoding.
#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/models/seq2seq_rnn.h>

#include "expect_error.h"
#include "fixture.h"
#include "on_device.h"
#include "op_check.h"

namespace heed::test {
namespace {

using nn::Tokens;

const std::vector<std::vector<int64_t>> kSources{{3, 5, 4}, {6}, {4, 3, 7, 5, 6}},
    kTargets{{1, 4, 6, 3}, {1, 7}, {1, 3, 5}};

nn::Seq2SeqRnnConfig config(const std::string& name) {
  nn::Seq2SeqRnnConfig c{.source_vocabulary = 8, .target_vocabulary = 8, .d_model = 6};
  c.cell = name == "lstm" ? CellKind::lstm : CellKind::gru;
  c.encoder_layers = name == "gru" ? 2 : 1;
  c.decoder_layers = name == "gru" ? 3 : name == "lstm" ? 2 : 1;
  return c;
}

struct Trial {
  Fixture fixture;
  nn::Seq2SeqRnn model;
  Tensor logits;

  Trial(const std::string& name, DType dtype, Device device)
      : fixture("seq2seq_rnn", name), model(config(name)) {
    move(model, dtype, device);
    fill_parameters(model.parameters(), fixture);
    logits = model.forward(Tokens::packed(kSources, device), Tokens::packed(kTargets, device));
  }
  std::vector<std::pair<std::string, Tensor>> gradients() {
    sum(logits * golden_input(2000, logits.shape()).to(logits.dtype()).to(logits.device())).backward();
    std::vector<std::pair<std::string, Tensor>> all;
    for (const Parameter& p : model.parameters()) all.emplace_back(p.name, p.tensor.grad());
    return all;
  }
};

class Seq2SeqRnnParity : public ::testing::TestWithParam<const char*> {};

TEST_P(Seq2SeqRnnParity, WithPyTorch) {
  for (const Device device : devices()) {
    if (!device.is_cpu()) continue;  // in f32 below
    const AttentionRecord record;
    Trial trial(GetParam(), DType::f64, device);
    EXPECT_LE(difference(trial.logits, trial.fixture["logits"]), 1e-10);
    int64_t row = 0, key = 0;
    for (size_t i = 0; i < kSources.size(); ++i) {
      const Tensor weights = record.weights("decoder.attention", static_cast<int64_t>(i), 0);
      EXPECT_LE(difference(weights, trial.fixture["weights"]
                                        .slice(0, row, row + weights.size(0))
                                        .slice(1, key, key + weights.size(1))
                                        .contiguous()),
                1e-10);
      row += weights.size(0), key += weights.size(1);
    }
    const auto gradients = trial.gradients();
    EXPECT_EQ(gradients.size(), trial.fixture.names("gradient").size());
    for (const auto& [name, value] : gradients)
      EXPECT_LE(difference(value, trial.fixture["gradient/" + name]), 1e-10) << name;
  }
}

// Each result is as far from that in f64 as rounding takes it: some tens of operations of 6e-8 each, of terms
// of 1e-3 and more, which may cancel: the softmax ignores what all keys share.
TEST_P(Seq2SeqRnnParity, InF32OnEveryDevice) {
  Trial exact(GetParam(), DType::f64, kCpu);
  const auto want = exact.gradients();
  for (const Device device : devices()) {
    Trial trial(GetParam(), DType::f32, device);
    EXPECT_LE(difference(trial.logits, exact.logits), 2e-6 * largest(exact.logits)) << device;
    const auto got = trial.gradients();
    for (size_t i = 0; i < want.size(); ++i) {
      const Tensor exact_value = as_f64(want[i].second);
      EXPECT_LE(norm(as_f64(got[i].second) - exact_value).item<double>(),
                2e-6 * std::max(1e-3, norm(exact_value).item<double>()))
          << want[i].first << " on " << device;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Seq2SeqRnnParity, ::testing::Values("gru", "lstm", "gru_shallow"));

// One token after the other gives what all at once give, also after hypotheses were exchanged and dropped.
TEST(Seq2SeqRnnDecoder, AStepEqualsTheLastRowOfAFullForward) {
  for (const char* name : {"gru", "lstm", "gru_shallow"}) {
    const Trial trial(name, DType::f64, kCpu);
    const NoGrad no_grad;
    const Tokens source = Tokens::packed({kSources[0], kSources[2]});
    const auto decoder = trial.model.start(source, 2);
    ASSERT_EQ(decoder->rows(), 4);
    std::vector<std::vector<int64_t>> outputs(4);
    std::vector<size_t> source_of{0, 0, 2, 2};
    const auto step = [&](const std::vector<int64_t>& ids) {
      const Tensor logits = decoder->step(tensor(ids, {static_cast<int64_t>(ids.size())}));
      for (size_t i = 0; i < ids.size(); ++i) {
        outputs[i].push_back(ids[i]);
        const Tensor all =
            trial.model.forward(Tokens::packed({kSources[source_of[i]]}), Tokens::packed({outputs[i]}));
        EXPECT_LE(difference(logits.select(0, static_cast<int64_t>(i)), all.select(0, all.size(0) - 1)),
                  1e-12)
            << name << ", row " << i;
      }
    };
    step({1, 1, 1, 1});
    step({3, 4, 5, 6});
    decoder->select(std::vector<int64_t>{1, 1, 3});
    outputs = {{1, 4}, {1, 4}, {1, 6}};
    source_of = {0, 0, 2};
    step({7, 3, 4});
    expect_error<IndexError>([&] { decoder->select(std::vector<int64_t>{3}); },
                             {"parent 3 is not in [0, 3)"});
    expect_error<ShapeError>([&] { decoder->step(zeros({2}, {.dtype = DType::i64})); }, {"expected [3]"});
  }
}

TEST(Seq2SeqRnnDecoder, BeamSearchFindsNoWorseThanGreedy) {
  Trial trial("gru", DType::f32, kCpu);
  const Tokens source = Tokens::packed(kSources);
  const auto greedy = nn::greedy_search(trial.model, source, {.max_length = 6});
  const auto beams = nn::beam_search(trial.model, source, {.max_length = 6, .beam = 8});
  for (size_t i = 0; i < kSources.size(); ++i) EXPECT_GE(beams[i].front().score, greedy[i].score - 1e-6);
}

TEST(Seq2SeqRnn, NamesDropoutAndErrors) {
  nn::Seq2SeqRnnConfig c = config("lstm");
  c.dropout = 0.5;
  nn::Seq2SeqRnn model(c);
  EXPECT_EQ(model.describe(), "Seq2SeqRnn(LSTM, 6, 1+2 layers, additive attention)");
  EXPECT_EQ(model.parameters().find("attention.score")->tensor.shape(), (Shape{6}));
  EXPECT_EQ(model.parameters().find("decoder.weight_ih_l0")->tensor.shape(), (Shape{24, 12}));
  const Tokens source = Tokens::packed(kSources), target = Tokens::packed(kTargets);
  EXPECT_GT(max_difference(model.forward(source, target), model.forward(source, target)), 0);
  model.eval();
  EXPECT_EQ(max_difference(model.forward(source, target), model.forward(source, target)), 0);
  expect_error<ConfigError>(
      [&] {
        nn::Seq2SeqRnnConfig odd = c;
        odd.d_model = 5;
        nn::Seq2SeqRnn refused(odd);
      },
      {"d_model = 5 is odd"});
  expect_error<ConfigError>(
      [&] {
        nn::Seq2SeqRnnConfig none = c;
        none.decoder_layers = 0;
        nn::Seq2SeqRnn refused(none);
      },
      {"decoder_layers must be positive"});
}

}  // namespace
}  // namespace heed::test
