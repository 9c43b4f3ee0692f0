#include <algorithm>
#include <bit>
#include <numeric>

#include <heed/core/base/divide.h>
#include <heed/core/creation.h>
#include <heed/kernels/embedding.h>
#include <heed/train/seq2seq.h>

namespace heed::train {
namespace {

// The smallest sizes of a bucket.
constexpr int64_t kRows = 64, kSequences = 8, kLongest = 8;

int64_t bucket_of(int64_t size, int64_t least) {
  if (size <= least) return least;
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size - 1)) / 4);
  return round_up(size, step);
}

template <class Values>
Tensor filled_up(const Values& values, int64_t size, typename Values::value_type rest) {
  const Tensor x = empty({size}, {dtype_of<typename Values::value_type>(), kCpu});
  auto* const first = x.data<typename Values::value_type>();
  std::fill(std::copy(values.begin(), values.end(), first), first + size, rest);
  return x;
}

Tensor positions_of(const data::Sequences& side, int64_t rows) {
  const Tensor positions = zeros({rows}, {DType::i64, kCpu});
  for (size_t i = 0; i < side.first.size(); ++i) {
    int64_t* const first = positions.data<int64_t>() + side.first[i];
    std::iota(first, first + side.length[i], int64_t{0});
  }
  return positions;
}

// The tensors of a side stand together: ids, positions, first rows, lengths. Those of several batches follow
// one another, and the shares of target tokens come last.
constexpr size_t kSource = 0, kTarget = 4, kLabels = 8, kTensors = 9, kConstants = 2;

void append(StepInputs& inputs, const data::Symbols& ids, const data::Sequences& side, bool padded) {
  const auto count = static_cast<int64_t>(side.first.size());
  const int64_t rows = padded ? bucket_of(side.rows, kRows) : side.rows;
  const int64_t sequences = padded ? bucket_of(count, kSequences) : count;
  inputs.tensors.push_back(filled_up(ids, rows, kNoToken));
  inputs.tensors.push_back(positions_of(side, rows));
  inputs.tensors.push_back(filled_up(side.first, sequences, side.rows));
  inputs.tensors.push_back(filled_up(side.length, sequences, 0));
  inputs.constants.push_back(padded ? bucket_of(side.max_length, kLongest) : side.max_length);
}

Segments segments_of(const Tensor& first, const Tensor& length, int64_t rows, int64_t longest) {
  if (first.device().is_cuda())
    return Segments::on_device(first, length, rows, static_cast<int32_t>(longest));
  const std::span<const int64_t> firsts(first.data<int64_t>(), static_cast<size_t>(first.numel()));
  const std::span<const int32_t> lengths(length.data<int32_t>(), static_cast<size_t>(length.numel()));
  return Segments(firsts, lengths, firsts, lengths);
}

nn::Tokens tokens_of(const StepInputs& inputs, size_t side, int64_t longest) {
  const Tensor* const x = &inputs.tensors[side];
  return {x[0], segments_of(x[2], x[3], x[0].numel(), longest), x[1]};
}

nn::Tokens tokens_of(const data::Symbols& ids, const data::Sequences& rows, Device device) {
  return {tensor(ids, {static_cast<int64_t>(ids.size())}, device),
          Segments(rows.first, rows.length, rows.first, rows.length),
          {}};
}

}  // namespace

Seq2SeqBatch to_tensors(const data::PairBatch& batch, Device device) {
  return {tokens_of(batch.source_ids, batch.source, device),
          tokens_of(batch.target_ids, batch.target, device),
          tensor(batch.labels, {static_cast<int64_t>(batch.labels.size())}, device)};
}

StepInputs step_inputs(const data::PairBatch& batch, Device device) {
  return step_inputs(std::span(&batch, 1), device);
}

StepInputs step_inputs(std::span<const data::PairBatch> batches, Device device) {
  const bool padded = !device.is_cpu();
  StepInputs inputs;
  PooledVector<float> shares;
  int64_t tokens = 0;
  for (const data::PairBatch& batch : batches) tokens += batch.target_tokens();
  for (const data::PairBatch& batch : batches) {
    const size_t first = inputs.tensors.size();
    append(inputs, batch.source_ids, batch.source, padded);
    append(inputs, batch.target_ids, batch.target, padded);
    inputs.tensors.push_back(filled_up(batch.labels, inputs.tensors[first + kTarget].numel(), data::kPad));
    shares.push_back(static_cast<float>(static_cast<double>(batch.target_tokens()) /
                                        static_cast<double>(std::max<int64_t>(tokens, 1))));
  }
  if (batches.size() > 1) inputs.tensors.push_back(filled_up(shares, std::ssize(shares), 0.f));
  return inputs;
}

size_t batch_count(const StepInputs& inputs) { return inputs.constants.size() / kConstants; }

Seq2SeqBatch batch_of(const StepInputs& inputs, size_t i) {
  const size_t first = i * kTensors;
  return {tokens_of(inputs, first + kSource, inputs.constants[i * kConstants]),
          tokens_of(inputs, first + kTarget, inputs.constants[i * kConstants + 1]),
          inputs.tensors[first + kLabels]};
}

Tensor token_share(const StepInputs& inputs, size_t i) {
  return inputs.tensors.back().select(0, static_cast<int64_t>(i));
}

}  // namespace heed::train
