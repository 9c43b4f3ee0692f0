// Training a sequence-to-sequence model: batches of pairs as it takes them, and its loss.
#pragma once

#include <heed/core/runtime/captured_step.h>
#include <heed/data/pair_loader.h>
#include <heed/nn/models/seq2seq.h>
#include <heed/train/batch.h>
#include <heed/train/trainer.h>

namespace heed::train {

/// A batch on the model's device.
struct Seq2SeqBatch {
  nn::Tokens source, target;
  Tensor labels;  // i64 [target rows]; kPad where there is none
};

Seq2SeqBatch to_tensors(const data::PairBatch& batch, Device device);

/// The batch as a step takes it, padded for devices that capture steps (train/packed_inputs.h), and back.
StepInputs step_inputs(const data::PairBatch& batch, Device device);
Seq2SeqBatch batch_of(const StepInputs& inputs);

/// Random positions to train with (nn::draw_positions), below `range`; 0: none, but 0, 1, 2, … The two
/// sequences of a pair share one choice, so that their first rows have one position, their second ones
/// another.
struct RandomPositions {
  int64_t range = 0;
  uint64_t seed = 42;
};

/// A loader's batches for a Trainer of a model on that device. Random positions follow from their seed and
/// the batch's place in the training. ShapeError for a batch with sequences longer than their range.
BatchSource seq2seq_batches(data::PairLoader& loader, Device device, const RandomPositions& positions = {});
/// The cross-entropy of the model's logits, a mean over target tokens. The model must outlive it.
LossFunction seq2seq_loss(const nn::Seq2SeqModel& model, double label_smoothing = 0);

}  // namespace heed::train
