#include <algorithm>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/train/packed_inputs.h>
#include <heed/train/seq2seq.h>

namespace heed::train {
namespace {

// The tensors of a batch: those of the source, of the target, and the labels.
constexpr size_t kTarget = kTokenTensors, kLabels = 2 * kTokenTensors;

nn::Tokens tokens_of(const data::TokenIds& ids, const data::Sequences& rows, Device device) {
  return {tensor(ids, {static_cast<int64_t>(ids.size())}, device),
          Segments(rows.first, rows.length, rows.first, rows.length)};
}

// Gives the sequences of each pair the first of as many positions as the longer one needs.
void randomize(StepInputs& inputs, const data::PairBatch& batch, int64_t range, const PhiloxState& random) {
  int64_t *const source = inputs.tensors[1].data<int64_t>(), *const target =
                                                                 inputs.tensors[kTarget + 1].data<int64_t>();
  PooledVector<int64_t> drawn;
  for (size_t i = 0; i < batch.source.first.size(); ++i) {
    drawn.resize(static_cast<size_t>(std::max(batch.source.length[i], batch.target.length[i])));
    nn::draw_positions(drawn, range, random, static_cast<int64_t>(i));
    std::copy_n(drawn.begin(), batch.source.length[i], source + batch.source.first[i]);
    std::copy_n(drawn.begin(), batch.target.length[i], target + batch.target.first[i]);
  }
  inputs.constants[1] = inputs.constants[kTokenConstants + 1] = range;
}

}  // namespace

Seq2SeqBatch to_tensors(const data::PairBatch& batch, Device device) {
  return {tokens_of(batch.source_ids, batch.source, device),
          tokens_of(batch.target_ids, batch.target, device),
          tensor(batch.labels, {static_cast<int64_t>(batch.labels.size())}, device)};
}

StepInputs step_inputs(const data::PairBatch& batch, Device device) {
  StepInputs inputs;
  append_tokens(inputs, batch.source_ids, batch.source, device);
  append_tokens(inputs, batch.target_ids, batch.target, device);
  append_labels(inputs, batch.labels, data::kPad);
  return inputs;
}

Seq2SeqBatch batch_of(const StepInputs& inputs) {
  return {tokens_of(inputs, 0, 0), tokens_of(inputs, kTarget, kTokenConstants), inputs.tensors[kLabels]};
}

BatchSource seq2seq_batches(data::PairLoader& loader, Device device, const RandomPositions& positions) {
  return BatchSource(static_cast<data::Loader<data::Pair, data::PairBatch>&>(loader),
                     [&loader, device, positions](const data::PairBatch& batch) {
                       StepInputs inputs = step_inputs(batch, device);
                       if (positions.range > 0) {
                         const data::LoaderState after = loader.state();
                         const auto place =
                             static_cast<uint64_t>(after.epoch) << 32 | static_cast<uint64_t>(after.position);
                         randomize(inputs, batch, positions.range, {positions.seed, nullptr, place});
                       }
                       return Batch{std::move(inputs), batch.size(), batch.target_tokens()};
                     });
}

LossFunction seq2seq_loss(const nn::Seq2SeqModel& model, double label_smoothing) {
  return [&model, label_smoothing](const StepInputs& inputs) {
    const Seq2SeqBatch batch = batch_of(inputs);
    return cross_entropy(model.forward(batch.source, batch.target), batch.labels,
                         {.ignore = data::kPad, .label_smoothing = label_smoothing});
  };
}

}  // namespace heed::train
