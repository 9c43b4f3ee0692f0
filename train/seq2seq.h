// Training a sequence-to-sequence model: batches of pairs as it takes them, and its loss.
#pragma once

#include <heed/core/captured_step.h>
#include <heed/data/pair_loader.h>
#include <heed/nn/transformer.h>
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

/// A loader's batches for a Trainer of a model on that device.
BatchSource seq2seq_batches(data::PairLoader& loader, Device device);
/// The cross-entropy of the model's logits, a mean over target tokens. The model must outlive it.
LossFunction seq2seq_loss(const nn::Transformer& model, double label_smoothing = 0);

}  // namespace heed::train
