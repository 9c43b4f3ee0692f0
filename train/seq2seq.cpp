#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/train/packed_inputs.h>
#include <heed/train/seq2seq.h>

namespace heed::train {
namespace {

// The tensors of a batch: those of the source, of the target, and the labels.
constexpr size_t kTarget = kTokenTensors, kLabels = 2 * kTokenTensors;

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
  StepInputs inputs;
  append_tokens(inputs, batch.source_ids, batch.source, device);
  append_tokens(inputs, batch.target_ids, batch.target, device);
  append_labels(inputs, batch.labels, data::kPad);
  return inputs;
}

Seq2SeqBatch batch_of(const StepInputs& inputs) {
  return {tokens_of(inputs, 0, 0), tokens_of(inputs, kTarget, kTokenConstants), inputs.tensors[kLabels]};
}

BatchSource seq2seq_batches(data::PairLoader& loader, Device device) {
  return BatchSource(static_cast<data::Loader<data::Pair, data::PairBatch>&>(loader),
                     [device](const data::PairBatch& batch) {
                       return Batch{step_inputs(batch, device), batch.size(), batch.target_tokens()};
                     });
}

LossFunction seq2seq_loss(const nn::Transformer& model, double label_smoothing) {
  return [&model, label_smoothing](const StepInputs& inputs) {
    const Seq2SeqBatch batch = batch_of(inputs);
    return cross_entropy(model.forward(batch.source, batch.target), batch.labels,
                         {.ignore = data::kPad, .label_smoothing = label_smoothing});
  };
}

}  // namespace heed::train
