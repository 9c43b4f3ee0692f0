// What the plain recipe's training and reports get wrong, and how heed's do it: docs/tutorials, "Copy and
// reverse, from scratch".
#include <random>
#include <set>

#include <gtest/gtest.h>

#include <heed/data/tasks.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/sgd.h>
#include <heed/train/trainer.h>

#include "apps/common/seq2seq.h"

namespace heed::apps {
namespace {

using Sources = std::set<data::TokenIds>;

int64_t common(const Sources& a, const Sources& b) {
  return std::count_if(a.begin(), a.end(), [&](const data::TokenIds& s) { return b.contains(s); });
}

// 5,000 and 1,000 sources of 3 to 10 symbols, each drawn without regard to the others.
TEST(CopyAndReverse, NoTestSourceIsInTraining) {
  std::mt19937 random(42);
  const auto draw = [&](int count) {
    Sources sources;
    for (int i = 0; i < count; ++i) {
      data::TokenIds source(3 + random() % 8);
      for (int64_t& symbol : source) symbol = 3 + static_cast<int64_t>(random() % 17);
      sources.insert(source);
    }
    return sources;
  };
  const Sources training = draw(5000);
  EXPECT_GT(common(training, draw(1000)), 5);

  const data::TaskOptions options{.pairs = 5000, .valid_pairs = 1000};
  const auto sources_of = [&](data::Split split) {
    const data::TaskDataset dataset(options, split);
    Sources sources;
    for (int64_t i = 0; i < dataset.size(); ++i) sources.insert(dataset.get(0, i).source);
    return sources;
  };
  const Sources test = sources_of(data::Split::valid);
  EXPECT_EQ(test.size(), 1000u);
  EXPECT_EQ(common(sources_of(data::Split::train), test), 0);
}

struct TinyRun {
  std::vector<train::EpochReport> epochs;
  std::vector<double> batch_means;  // of the first epoch
  double loss = 0;                  // over all tokens, of the model as it began

  // Six pairs in batches of four, so that the second has two; a rate so small that weights stay as they are.
  explicit TinyRun(const optim::Schedule& schedule, int64_t count) {
    const auto dataset = std::make_shared<data::TaskDataset>(
        data::TaskOptions{.vocab = 20, .pairs = 6, .valid_pairs = 0}, data::Split::train);
    nn::TransformerConfig config;
    config.source_vocabulary = config.target_vocabulary = 20;
    config.d_model = 32;
    config.heads = 2;
    config.d_ff = 64;
    config.encoder_layers = config.decoder_layers = 1;
    config.set_dropout(0);
    Generator generator(1);
    nn::Transformer model(config, generator);
    loss = evaluate(model, *dataset).loss;
    optim::Sgd optimizer(model.parameters());
    data::PairLoader loader(dataset, {.batch_size = 4, .shuffle = false});
    train::Trainer trainer(model, optimizer, train::seq2seq_batches(loader, kCpu), train::seq2seq_loss(model),
                           {.epochs = count, .schedule = schedule});
    trainer.run({.step =
                     [&](const train::StepReport& report) {
                       if (epochs.empty()) batch_means.push_back(report.loss);
                     },
                 .epoch = [&](const train::EpochReport& report) { epochs.push_back(report); }});
  }
};

TEST(CopyAndReverse, TheLossIsAMeanOverTokens) {
  const TinyRun run({.lr = 1e-20}, 1);
  ASSERT_EQ(run.batch_means.size(), 2u);
  const double mean_of_means = (run.batch_means[0] + run.batch_means[1]) / 2;
  EXPECT_GT(std::abs(mean_of_means - run.loss), 1e-3);  // what the plain recipe prints
  EXPECT_NEAR(run.epochs[0].loss, run.loss, 1e-5);
}

// The plain recipe halves the rate and then prints it beside the epoch that is over.
TEST(CopyAndReverse, TheRateIsThatOfTheEpochsLastStep) {
  const optim::Schedule halves{.kind = optim::ScheduleKind::step, .lr = 1e-20, .step_size = 2, .gamma = 0.5};
  const TinyRun run(halves, 2);
  ASSERT_EQ(run.epochs.size(), 2u);
  EXPECT_EQ(run.epochs[0].lr, 1e-20);
  EXPECT_EQ(halves.at(run.epochs[0].step), 0.5e-20);
  EXPECT_EQ(run.epochs[1].lr, 0.5e-20);
}

}  // namespace
}  // namespace heed::apps
