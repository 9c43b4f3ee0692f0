// What pre-training is worth where few texts have labels: the same models learn to tell what a text is about
// from 16 examples, at once or after they have restored 2,000 texts without labels. docs/pretraining.md
// explains it.
//
//   pretraining_example [SEEDS]   1, which is over in some seconds; fails unless pre-training helps
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>

#include <heed/core/ops.h>
#include <heed/data/corruption.h>
#include <heed/data/pair_loader.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/models/text_encoder.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>
#include <heed/train/packed_inputs.h>
#include <heed/train/seq2seq.h>
#include <heed/train/trainer.h>

using namespace heed;
using data::TokenIds;

// A language of 8 topics with 48 words each and 48 words that any topic has. What a text is about can be told
// from its words by who knows which words go together, and that stands in texts without labels too.
constexpr int64_t kTopics = 8, kWords = 48, kLength = 16;
constexpr int64_t kMask = 3, kFirstSentinel = 4, kFirstTopic = 8, kFirstWord = 16;
constexpr int64_t kVocabulary = kFirstWord + (kTopics + 1) * kWords;

class Texts final : public data::Dataset<TokenIds> {
 public:
  Texts(int64_t size, uint64_t seed) : size_(size), seed_(seed) {}
  int64_t size() const override { return size_; }
  static int64_t topic(int64_t index) { return index % kTopics; }
  TokenIds get(int64_t, int64_t index) const override {
    data::SampleDraw draw(seed_, 0, index);
    TokenIds text;
    for (int64_t i = 0; i < kLength; ++i) {
      const int64_t group = draw.uniform() < 0.5 ? topic(index) : kTopics;
      text.push_back(kFirstWord + group * kWords + draw.below(kWords));
    }
    return text;
  }
  std::string fingerprint() const override { return "topics"; }

 private:
  int64_t size_;
  uint64_t seed_;
};

// Texts and, as a target of one symbol, their topics.
class Labeled final : public data::PairDataset {
 public:
  Labeled(int64_t size, uint64_t seed) : texts_(size, seed) {}
  int64_t size() const override { return texts_.size(); }
  data::Pair get(int64_t, int64_t i) const override {
    return {texts_.get(0, i), {kFirstTopic + Texts::topic(i)}};
  }
  int64_t vocab() const override { return kVocabulary; }
  int64_t longest_source() const override { return kLength; }
  int64_t longest_target() const override { return 1; }
  std::string fingerprint() const override { return "labeled topics"; }

 private:
  Texts texts_;
};

constexpr data::Marks kBare{.source = false, .end = false};

// Trains for so many epochs and leaves the model in evaluation mode.
void train_for(nn::Module& model, train::BatchSource batches, train::LossFunction loss, int64_t epochs,
               double rate) {
  optim::AdamW adam(model.parameters(), {.lr = rate});
  train::Trainer trainer(model, adam, std::move(batches), std::move(loss),
                         {.epochs = epochs, .clip = 1, .schedule = {.lr = rate}});
  trainer.run();
  model.eval();
}

// The part of 512 new texts whose topic has the largest of the logits [texts, …] at `first` and after.
double accuracy(const std::function<Tensor(const train::Seq2SeqBatch&)>& logits, int64_t first) {
  data::PairLoader loader(std::make_shared<Labeled>(512, 1'000'003), {.batch_size = 512, .shuffle = false},
                          kBare);
  const train::Seq2SeqBatch batch = train::to_tensors(*loader.next(), kCpu);
  const NoGrad no_grad;
  const Tensor found = argmax(logits(batch).slice(1, first, first + kTopics), 1) + kFirstTopic;
  return mean(equal(found, batch.labels).to(DType::f32)).item<double>();
}

// BERT's way: an encoder restores masked words; then a head on the mean of its states learns the topics.
struct Encoder : nn::Module {
  nn::TextEncoder body;
  nn::Linear head{48, kTopics};
  static nn::TextEncoderConfig config() {
    nn::TextEncoderConfig c;
    c.vocabulary = kVocabulary;
    c.d_model = 48;
    c.heads = 4;
    c.d_ff = 96;
    c.layers = 2;
    c.max_length = kLength;
    c.token_types = 0;
    c.pooler = false;
    return c;
  }
  Encoder() : body(config()) {}
  void visit(nn::Visitor& v) override {
    v("body", body);
    v("head", head);
  }
  Tensor topics(const nn::Tokens& tokens) const {
    return head(segment_mean(body.forward(tokens), tokens.segments));
  }
};

double with_encoder(bool pretrain, uint64_t seed) {
  manual_seed(seed);
  Encoder model;
  if (pretrain) {
    const data::MaskingOptions masking{.mask = kMask, .vocabulary = kVocabulary, .special = {0, 1, 2}};
    const auto texts =
        std::make_shared<data::MaskedDataset>(std::make_shared<Texts>(2'000, seed), masking, seed);
    data::Loader<data::MaskedText, data::MaskedBatch> loader(texts, data::masked_collate(), {.seed = seed});
    const auto to_batch = [](const data::MaskedBatch& b) {
      train::Batch batch{{}, b.size(), b.labeled()};
      train::append_tokens(batch.inputs, b.ids, b.texts, kCpu);
      train::append_labels(batch.inputs, b.labels, data::kNoLabel);
      return batch;
    };
    train_for(
        model, {loader, to_batch},
        [&](const StepInputs& in) {  // the output layer is the table of embeddings
          return linear_cross_entropy(model.body.forward(train::tokens_of(in, 0, 0)),
                                      model.body.embedding.weight, in.tensors.back());
        },
        20, 3e-3);
  }
  data::PairLoader loader(std::make_shared<Labeled>(16, seed), {.batch_size = 16, .seed = seed}, kBare);
  train_for(
      model, train::seq2seq_batches(loader, kCpu),
      [&](const StepInputs& in) {
        const train::Seq2SeqBatch batch = train::batch_of(in);
        return cross_entropy(model.topics(batch.source), batch.labels - kFirstTopic);
      },
      60, 1e-3);
  return accuracy([&](const train::Seq2SeqBatch& b) { return model.topics(b.source); }, 0);
}

// T5's and BART's way: an encoder-decoder restores texts; then it learns to write the topic.
double with_transformer(std::shared_ptr<const data::PairDataset> corrupted, uint64_t seed) {
  manual_seed(seed);
  nn::TransformerConfig config;
  config.source_vocabulary = config.target_vocabulary = kVocabulary;
  config.d_model = 48;
  config.heads = 4;
  config.d_ff = 96;
  config.encoder_layers = config.decoder_layers = 2;
  config.share_embeddings = config.tie_generator = true;
  config.embedding_deviation = 0.15;
  nn::Transformer model(config);
  if (corrupted) {
    data::PairLoader loader(std::move(corrupted), {.seed = seed}, {.source = false});
    train_for(model, train::seq2seq_batches(loader, kCpu), train::seq2seq_loss(model), 20, 3e-3);
  }
  data::PairLoader loader(std::make_shared<Labeled>(16, seed), {.batch_size = 16, .seed = seed}, kBare);
  train_for(model, train::seq2seq_batches(loader, kCpu), train::seq2seq_loss(model), 60, 1e-3);
  return accuracy([&](const train::Seq2SeqBatch& b) { return model.forward(b.source, b.target); },
                  kFirstTopic);
}

int main(int argc, char** argv) {
  const int seeds = argc > 1 ? std::atoi(argv[1]) : 1;
  const auto texts = [](uint64_t seed) { return std::make_shared<Texts>(2'000, seed); };
  const std::pair<const char*, std::function<double(uint64_t)>> rows[] = {
      {"encoder, no pre-training", [](uint64_t s) { return with_encoder(false, s); }},
      {"encoder, masked words", [](uint64_t s) { return with_encoder(true, s); }},
      {"encoder-decoder, no pre-training", [](uint64_t s) { return with_transformer(nullptr, s); }},
      {"encoder-decoder, spans",
       [&](uint64_t s) {
         const data::SpanOptions options{.sentinels = {kFirstSentinel, kFirstSentinel + 1}};
         return with_transformer(std::make_shared<data::SpanCorruption>(texts(s), options, kVocabulary, s),
                                 s);
       }},
      {"encoder-decoder, infilling",
       [&](uint64_t s) {
         return with_transformer(std::make_shared<data::TextInfilling>(
                                     texts(s), data::InfillingOptions{.mask = kMask}, kVocabulary, s),
                                 s);
       }},
  };
  double without = 0;
  bool helps = true;
  for (const auto& [name, learn] : rows) {
    double sum = 0;
    std::printf("%-34s", name);
    for (int seed = 1; seed <= seeds; ++seed) {
      const double right = learn(static_cast<uint64_t>(seed));
      sum += right;
      std::printf("  %5.1f %%", 100 * right);
      std::fflush(stdout);
    }
    std::printf("\n");
    if (std::string(name).ends_with("no pre-training"))
      without = sum;
    else
      helps = helps && sum > without + 0.1 * seeds;
  }
  return helps ? 0 : 1;
}
