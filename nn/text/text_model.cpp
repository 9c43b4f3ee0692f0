#include <algorithm>
#include <numeric>
#include <utility>

#include <heed/nn/decoding/decode.h>
#include <heed/nn/decoding/ensemble.h>
#include <heed/nn/text/text_model.h>

namespace heed::nn {
namespace {

/// As training feeds it (data/pair_batch.h): framed by marks.
std::vector<int64_t> framed(const data::TokenIds& symbols) {
  std::vector<int64_t> ids{data::kStart};
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  ids.push_back(data::kEnd);
  return ids;
}

void check_same(const data::Tokenizer& first, const data::Tokenizer& other, const char* side, size_t model) {
  const std::string difference = data::difference(first, other);
  HEED_CHECK(difference.empty(), ConfigError, "the models of an ensemble need the same ", side,
             " tokenizer, but that of model ", model, " is not the first model's: ", difference);
}

}  // namespace

TextModel::TextModel(std::shared_ptr<Transformer> model, std::shared_ptr<const data::Tokenizer> source,
                     std::shared_ptr<const data::Tokenizer> target, int64_t max_output)
    : TextModel(std::vector<std::shared_ptr<Transformer>>{std::move(model)}, std::move(source),
                std::move(target), max_output) {}

TextModel::TextModel(std::vector<std::shared_ptr<Transformer>> models,
                     std::shared_ptr<const data::Tokenizer> source,
                     std::shared_ptr<const data::Tokenizer> target, int64_t max_output)
    : models_(std::move(models)),
      source_(std::move(source)),
      target_(std::move(target)),
      max_output_(max_output) {
  HEED_CHECK(!models_.empty(), ConfigError, "a TextModel needs a model");
  for (const auto& model : models_) {
    const TransformerConfig& config = model->config();
    HEED_CHECK(config.source_vocabulary == source_->vocab() && config.target_vocabulary == target_->vocab(),
               ConfigError, "the model has vocabularies of ", config.source_vocabulary, " and ",
               config.target_vocabulary, ", its tokenizers of ", source_->vocab(), " and ", target_->vocab());
  }
  for (const data::Tokenizer* tokenizer : {source_.get(), target_.get()})
    HEED_CHECK(
        tokenizer->options().kind != data::TokenizerKind::pretrained, ConfigError,
        "a TextModel begins and ends its texts with ids 1 and 2, which are text in a pretrained tokenizer");
  HEED_CHECK(max_output_ > 0, ConfigError, "max_output must be positive, got ", max_output_);
  searched_ = models_.front();
  if (models_.size() > 1)
    searched_ = std::make_shared<Seq2SeqEnsemble>(
        std::vector<std::shared_ptr<Seq2SeqModel>>(models_.begin(), models_.end()));
}

TextModel TextModel::ensemble(const std::vector<TextModel>& models) {
  HEED_CHECK(!models.empty(), ConfigError, "an ensemble needs at least one model");
  const TextModel& first = models.front();
  std::vector<std::shared_ptr<Transformer>> all;
  int64_t max_output = first.max_output_;
  for (size_t i = 0; i < models.size(); ++i) {
    const TextModel& model = models[i];
    check_same(*first.source_, *model.source_, "source", i + 1);
    check_same(*first.target_, *model.target_, "target", i + 1);
    all.insert(all.end(), model.models_.begin(), model.models_.end());
    max_output = std::min(max_output, model.max_output_);
  }
  return TextModel(std::move(all), first.source_, first.target_, max_output);
}

int64_t TextModel::max_input() const {
  constexpr int64_t kMarks = 2;
  int64_t most = kMaxTextTokens;
  for (const auto& model : models_)
    if (model->config().position == PositionKind::learned)
      most = std::min(most, model->config().max_length - kMarks);
  return most;
}

std::vector<data::TokenIds> TextModel::tokenize(const std::vector<std::string>& texts) const {
  const int64_t most = max_input();
  std::vector<data::TokenIds> result;
  for (size_t i = 0; i < texts.size(); ++i) {
    try {
      result.push_back(source_->encode(texts[i]));
    } catch (const DataError& error) {
      throw DataError(concat("text ", i + 1, ": ", error.what()));
    }
    HEED_CHECK(std::ssize(result.back()) <= most, DataError, "text ", i + 1, ": ", result.back().size(),
               " tokens; at most ", most, " are taken");
  }
  return result;
}

std::string TextModel::run(std::string_view text, const TextOptions& options) const {
  return run(std::vector<std::string>{std::string(text)}, options).front().front().text;
}

std::vector<std::vector<TextOutput>> TextModel::run(const std::vector<std::string>& texts,
                                                    const TextOptions& options) const {
  HEED_CHECK(options.best >= 1 && options.best <= options.beam, ConfigError, options.best,
             " outputs of a text are wanted, from a beam of ", options.beam);
  const std::vector<data::TokenIds> sources = tokenize(texts);
  std::vector<std::vector<TextOutput>> results(texts.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty())
      results[i].emplace_back();
    else
      order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() < sources[b].size(); });

  const int64_t longest =
      std::min(options.max_length > 0 ? options.max_length : max_output_, searched_->max_target());
  const data::TokenIds forced = target_->encode(options.prefix);
  const std::vector<int64_t> prefix(forced.begin(), forced.end());
  DecodeOptions decode{.start = data::kStart,
                       .end = data::kEnd,
                       .max_length = longest,
                       .min_length = options.min_length,
                       .beam = options.beam,
                       .best = options.on_choice ? 0 : options.best,  // who looks on sees it to its end
                       .length_penalty = options.length_penalty,
                       .on_step = options.on_step,
                       .sample = options.sample};
  const Device device = model().tgt_embedding.weight.device();
  for (size_t first = 0; first < order.size();) {
    std::vector<std::vector<int64_t>> batch;
    int64_t rows = 0;
    for (size_t i = first; i < order.size(); ++i) {
      std::vector<int64_t> ids = framed(sources[order[i]]);
      rows += std::ssize(ids);
      if (!batch.empty() && rows > options.batch_tokens) break;
      batch.push_back(std::move(ids));
    }
    if (options.on_choice)
      decode.on_choice = [&, first](int64_t source, auto kept, auto pruned) {
        options.on_choice(static_cast<int64_t>(order[first + static_cast<size_t>(source)]), kept, pruned);
      };
    if (!prefix.empty()) decode.prefixes.assign(batch.size(), prefix);
    const auto found = beam_search(*searched_, Tokens::packed(batch, device), decode);
    for (size_t i = 0; i < found.size(); ++i)
      for (int64_t n = 0; n < std::min<int64_t>(options.best, std::ssize(found[i])); ++n) {
        const Hypothesis& h = found[i][static_cast<size_t>(n)];
        results[order[first + i]].push_back({target_->decode(h.tokens), h.score, h.finished, h.tokens});
      }
    first += batch.size();
    if (options.on_batch) options.on_batch(std::ssize(batch));
  }
  return results;
}

}  // namespace heed::nn
