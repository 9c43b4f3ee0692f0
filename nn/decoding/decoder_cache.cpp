#include <algorithm>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/decoding/decoder_cache.h>

namespace heed::nn {

Segments source_segments(const Segments& source, std::span<const int64_t> source_of) {
  PooledVector<int64_t> query_first, key_first;
  PooledVector<int32_t> key_length;
  query_first.reserve(source_of.size());
  key_first.reserve(source_of.size());
  key_length.reserve(source_of.size());
  for (const int64_t sequence : source_of) {
    query_first.push_back(static_cast<int64_t>(query_first.size()));
    key_first.push_back(source.key_first(sequence));
    key_length.push_back(source.key_length(sequence));
  }
  return Segments(query_first, PooledVector<int32_t>(source_of.size(), 1), key_first, key_length);
}

namespace {

int64_t checked(int64_t hypotheses) {
  HEED_CHECK(hypotheses > 0, ConfigError, "DecoderCache: hypotheses must be positive, got ", hypotheses);
  return hypotheses;
}

}  // namespace

DecoderCache::DecoderCache(const Transformer& model, const Tensor& memory, const Segments& source,
                           int64_t hypotheses)
    : model_(model),
      source_(source),
      past_(static_cast<int64_t>(model.decoder.layers.size()), source.count() * checked(hypotheses),
            2 * model.config().head_layout().of(model.config().d_model).key_columns(),
            model.tgt_embedding.weight.options()) {
  for (int64_t sequence = 0; sequence < source.count(); ++sequence)
    source_of_.insert(source_of_.end(), static_cast<size_t>(hypotheses), sequence);
  cross_ = source_segments(source_, source_of_);
  queries_ = Segments::dense(rows(), 1);
  for (const auto& layer : model.decoder.layers)
    memory_.push_back({{}, layer->multihead_attn.project_kv(memory)});
}

Tensor DecoderCache::step(const Tensor& ids) {
  HEED_CHECK(!grad_enabled(), StateError, "DecoderCache: hold a NoGrad while decoding");
  HEED_CHECK(ids.shape() == Shape{rows()}, ShapeError, "DecoderCache::step: ids are ", ids.shape(),
             ", expected [", rows(), "]");
  const int64_t length = this->length() + 1;
  const Tensor positions = full({rows()}, static_cast<double>(length - 1), {DType::i64, ids.device()});
  const Tensor x = model_.embed_target(ids, positions, length);
  past_.extend(queries_);
  // The query is the last of its sequence: it sees all keys there are.
  const AttentionCall call{
      .visibility = {Causal::bottom_right}, .rotation = model_.rotation(positions, length), .cache = &past_};
  return model_.logits(model_.decoder(x, past_.segments(), memory_, cross_, call, {}));
}

void DecoderCache::select(std::span<const int64_t> parents) {
  bool same = static_cast<int64_t>(parents.size()) == rows();
  PooledVector<int64_t> sources;
  for (size_t i = 0; i < parents.size(); ++i) {
    HEED_CHECK(parents[i] >= 0 && parents[i] < rows(), IndexError, "DecoderCache::select: parent ",
               parents[i], " is not in [0, ", rows(), ")");
    same &= parents[i] == static_cast<int64_t>(i);
    sources.push_back(source_of_[static_cast<size_t>(parents[i])]);
  }
  if (same) return;
  past_.select(parents);
  source_of_ = std::move(sources);
  cross_ = source_segments(source_, source_of_);
  queries_ = Segments::dense(rows(), 1);
}

}  // namespace heed::nn
