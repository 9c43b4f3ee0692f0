#include <algorithm>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/decoder_cache.h>

namespace heed::nn {
namespace {

constexpr int64_t kFirstCapacity = 32;

// One query for each hypothesis; its keys are its source's rows, which several hypotheses share.
Segments source_segments(const Segments& source, const PooledVector<int64_t>& source_of) {
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

}  // namespace

DecoderCache::DecoderCache(const Transformer& model, const Tensor& memory, const Segments& source,
                           int64_t hypotheses)
    : model_(model), source_(source) {
  HEED_CHECK(hypotheses > 0, ConfigError, "DecoderCache: hypotheses must be positive, got ", hypotheses);
  for (int64_t sequence = 0; sequence < source.count(); ++sequence)
    source_of_.insert(source_of_.end(), static_cast<size_t>(hypotheses), sequence);
  cross_ = source_segments(source_, source_of_);
  for (const auto& layer : model.decoder.layers)
    memory_.push_back({{}, layer->multihead_attn.project_kv(memory)});
  past_.resize(memory_.size());
  grow(kFirstCapacity);
}

void DecoderCache::grow(int64_t capacity) {
  const int64_t width = 2 * model_.config().d_model;
  for (Tensor& past : past_) {
    // Rows beyond the length are never read: attention ends at the segment.
    const Tensor larger = empty({rows(), capacity, width}, model_.tgt_embedding.weight.options());
    if (length_ > 0) larger.slice(1, 0, length_).copy_(past.slice(1, 0, length_));
    past = larger;
  }
  capacity_ = capacity;
}

Tensor DecoderCache::step(const Tensor& ids) {
  HEED_CHECK(!grad_enabled(), StateError, "DecoderCache: hold a NoGrad while decoding");
  HEED_CHECK(ids.shape() == Shape{rows()}, ShapeError, "DecoderCache::step: ids are ", ids.shape(),
             ", expected [", rows(), "]");
  if (length_ == capacity_) grow(2 * capacity_);
  const Device device = ids.device();
  const int64_t d_model = model_.config().d_model;
  const Tensor position = full({rows()}, static_cast<double>(length_), {DType::i64, device});
  const Tensor x = model_.embed_target(ids, position, length_ + 1);
  // One query for each hypothesis; its keys are the first of the `capacity_` rows that it has in the cache.
  const PooledVector<int32_t> lengths(source_of_.size(), static_cast<int32_t>(length_ + 1));
  const Segments past = Segments::dense(rows(), 1, capacity_, lengths);
  const auto self_attend = [&](size_t layer, const Tensor& input) {
    const MultiHeadAttention& attention = model_.decoder.layers[layer]->self_attn;
    const Tensor qkv = attention.project_qkv(input);
    past_[layer].select(1, length_).copy_(qkv.slice(1, d_model, 3 * d_model));
    // The query is the last of its sequence: it sees all keys there are.
    return attention.attend(qkv.slice(1, 0, d_model), past_[layer], past,
                            {.visibility = {Causal::bottom_right}});
  };
  const Tensor states = model_.decoder.run(x, self_attend, memory_, cross_, {});
  ++length_;
  return model_.logits(states);
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
  const auto count = static_cast<int64_t>(parents.size());
  const Tensor index = tensor(parents, {count}, model_.tgt_embedding.weight.device());
  for (Tensor& past : past_) past = index_select(past, index);
  source_of_ = std::move(sources);
  cross_ = source_segments(source_, source_of_);
}

}  // namespace heed::nn
