#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include <heed/core/io/atomic_file.h>
#include <heed/core/losses.h>
#include <heed/core/ops.h>
#include <heed/nn/pretrained/detail/settings_file.h>
#include <heed/nn/pretrained/detail/written_json.h>
#include <heed/nn/pretrained/pretrained.h>
#include <heed/nn/text/sentence_encoder.h>

namespace heed::nn {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;

SentencePooling read_pooling(const std::string& folder) {
  const detail::Settings settings =
      detail::read_optional_settings(folder + "/1_Pooling/config.json", kMaxConfigBytes);
  for (const char* other : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                            "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"})
    settings.expect_flag(other, false);
  const bool first = settings.flag("pooling_mode_cls_token", false);
  settings.expect_flag("pooling_mode_mean_tokens", !first);
  return first ? SentencePooling::first : SentencePooling::mean;
}

}  // namespace

SentenceEncoder::SentenceEncoder(std::shared_ptr<TextEncoder> model,
                                 std::shared_ptr<const data::PretrainedTokenizer> tokenizer,
                                 SentencePooling pooling, int64_t max_tokens)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)), pooling_(pooling), max_tokens_(max_tokens) {
  const TextEncoderConfig& config = model_->config();
  HEED_CHECK(tokenizer_->vocab() <= config.vocabulary, ConfigError, "the model has a vocabulary of ",
             config.vocabulary, ", its tokenizer of ", tokenizer_->vocab());
  HEED_CHECK(max_tokens_ > 0, ConfigError, "max_tokens must be positive, got ", max_tokens_);
  HEED_CHECK(config.position != PositionKind::learned || max_tokens_ <= config.max_length, ConfigError,
             "texts of ", max_tokens_, " tokens exceed the ", config.max_length, " positions of the model");
}

std::vector<int64_t> SentenceEncoder::tokenize(const std::string& text) const {
  const data::TokenIds ids = tokenizer_->encode(text, {.special_tokens = false, .max_length = max_tokens_});
  return {ids.begin(), ids.end()};
}

Tensor SentenceEncoder::pool(const Tokens& tokens) const {
  const Tensor states = model_->forward(tokens);
  if (pooling_ == SentencePooling::mean) return segment_mean(states, tokens.segments);
  const Tensor first = empty({tokens.segments.count()}, {.dtype = DType::i64});
  for (int64_t i = 0; i < tokens.segments.count(); ++i)
    first.data<int64_t>()[i] = tokens.segments.query_first(i);
  return index_select(states, first.to(tokens.ids.device()));
}

Tensor SentenceEncoder::embed(const Tokens& tokens) const {
  const Tensor pooled = pool(tokens);
  return pooled / maximum(norm(pooled, {.axes = {-1}, .keep = true}), 1e-12);
}

Tensor SentenceEncoder::encode(const std::vector<std::string>& texts, const SentenceOptions& options) const {
  return map(
      texts, width(), [this](const Tokens& tokens) { return embed(tokens); }, options);
}

Tensor SentenceEncoder::map(const std::vector<std::string>& texts, int64_t width,
                            const std::function<Tensor(const Tokens&)>& function,
                            const SentenceOptions& options) const {
  HEED_CHECK(options.batch_tokens > 0, ConfigError, "batch_tokens must be positive, got ",
             options.batch_tokens);
  std::vector<std::vector<int64_t>> sequences;
  for (size_t i = 0; i < texts.size(); ++i) {
    try {
      sequences.push_back(tokenize(texts[i]));
    } catch (const DataError& error) {
      throw DataError(concat("text ", i + 1, ": ", error.what()));
    }
  }
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sequences[a].size() > sequences[b].size(); });

  const NoGrad no_grad;
  const Device device = model_->embedding.weight.device();
  Tensor result = zeros({std::ssize(texts), width});
  for (size_t first = 0; first < order.size();) {
    std::vector<std::vector<int64_t>> batch;
    int64_t rows = 0;
    const auto fits = [&](size_t i) {
      return batch.empty() || rows + std::ssize(sequences[i]) <= options.batch_tokens;
    };
    size_t last = first;
    for (; last < order.size() && fits(order[last]); ++last) {
      rows += std::ssize(sequences[order[last]]);
      batch.push_back(std::move(sequences[order[last]]));
    }
    if (rows > 0) {  // texts without a token, in a model without marks, stay zero
      const Tensor vectors = function(Tokens::packed(batch, device)).to(DType::f32).to(kCpu).contiguous();
      for (size_t i = first; i < last; ++i)
        std::memcpy(result.data<float>() + static_cast<int64_t>(order[i]) * width,
                    vectors.data<float>() + static_cast<int64_t>(i - first) * width,
                    static_cast<size_t>(width) * sizeof(float));
    }
    if (options.on_batch) options.on_batch(static_cast<int64_t>(last - first));
    first = last;
  }
  return result;
}

SentenceEncoder load_sentence_encoder(const std::string& folder, Device device, DType dtype) {
  const SentencePooling pooling = read_pooling(folder);
  std::shared_ptr<TextEncoder> model = load_pretrained<TextEncoder>(folder, {.dtype = dtype});
  model->to(device);
  const int64_t most = model->config().max_length;
  const int64_t length =
      detail::read_optional_settings(folder + "/sentence_bert_config.json", kMaxConfigBytes)
          .integer("max_seq_length", most);
  return {std::move(model), data::load_pretrained_tokenizer(folder), pooling, std::min(length, most)};
}

void save_sentence_encoder(const SentenceEncoder& encoder, const std::string& folder) {
  using detail::Json;
  save_pretrained(encoder.model(), folder);
  const auto write = [&](const std::string& name, const Json& content) {
    write_whole_file(folder + "/" + name, content.dump(2) + "\n");
  };
  write_whole_file(folder + "/tokenizer.json", encoder.tokenizer().serialize());
  write("sentence_bert_config.json", {{"max_seq_length", encoder.max_tokens()}, {"do_lower_case", false}});
  const std::string types = "sentence_transformers.models.";
  write("modules.json",
        Json::array({{{"idx", 0}, {"name", "0"}, {"path", ""}, {"type", types + "Transformer"}},
                     {{"idx", 1}, {"name", "1"}, {"path", "1_Pooling"}, {"type", types + "Pooling"}},
                     {{"idx", 2}, {"name", "2"}, {"path", "2_Normalize"}, {"type", types + "Normalize"}}}));
  std::error_code error;
  std::filesystem::create_directories(folder + "/1_Pooling", error);
  HEED_CHECK(!error, IoError, "cannot make the folder '", folder, "/1_Pooling': ", error.message());
  const bool mean = encoder.pooling() == SentencePooling::mean;
  write("1_Pooling/config.json", {{"word_embedding_dimension", encoder.width()},
                                  {"pooling_mode_cls_token", !mean},
                                  {"pooling_mode_mean_tokens", mean},
                                  {"pooling_mode_max_tokens", false},
                                  {"pooling_mode_mean_sqrt_len_tokens", false}});
}

Tensor ranking_loss(const Tensor& questions, const Tensor& answers, double scale) {
  HEED_CHECK(questions.rank() == 2 && questions.shape() == answers.shape(), ShapeError,
             "ranking_loss: questions ", questions.shape(), " and answers ", answers.shape(),
             "; expected [texts, width] of both");
  Tensor own = empty({questions.size(0)}, {.dtype = DType::i64});
  std::iota(own.data<int64_t>(), own.data<int64_t>() + own.numel(), int64_t{0});
  const Tensor cosines = matmul(questions, answers.transpose(0, 1));
  return cross_entropy(cosines * scale, own.to(questions.device()));
}

}  // namespace heed::nn
