// A batch of pairs as a sequence-to-sequence model takes it, and as a captured step does
// (core/captured_step.h).
#pragma once

#include <span>

#include <heed/core/captured_step.h>
#include <heed/data/pair_batch.h>
#include <heed/nn/tokens.h>

namespace heed::train {

/// A batch on the model's device.
struct Seq2SeqBatch {
  nn::Tokens source, target;
  Tensor labels;  // i64 [target rows]; kPad where there is none
};

Seq2SeqBatch to_tensors(const data::PairBatch& batch, Device device);

/// For the CPU the batch as it is. For other devices it is padded to its bucket, so that few shapes occur:
/// the numbers of rows and of sequences and the longest lengths are rounded up, to one of four sizes between
/// a power of two and the next. Rows that are added hold kNoToken and the label kPad, sequences no rows.
StepInputs step_inputs(const data::PairBatch& batch, Device device);

/// Several batches for one step, which adds their gradients.
StepInputs step_inputs(std::span<const data::PairBatch> batches, Device device);

/// Batches that a step sees, and each of them.
size_t batch_count(const StepInputs& inputs);
Seq2SeqBatch batch_of(const StepInputs& inputs, size_t i = 0);

/// What part of the step's target tokens batch i has, f32 [] on the step's device.
Tensor token_share(const StepInputs& inputs, size_t i);

}  // namespace heed::train
