// Packed sequences as inputs of a step (core/runtime/captured_step.h), and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include <heed/core/runtime/captured_step.h>
#include <heed/data/pair_batch.h>
#include <heed/nn/decoding/tokens.h>

namespace heed::train {

/// How many tensors and constants append_tokens() adds.
inline constexpr size_t kTokenTensors = 4, kTokenConstants = 2;

/// Adds sequences: their ids, positions, first rows and lengths, and as constants the longest length and the
/// range of the positions, 0 for 0, 1, 2, …. For the CPU as they are. For other devices they are padded to
/// their bucket, so that few shapes occur: the numbers of rows and of sequences and the longest length are
/// rounded up, to one of four sizes between a power of two and the next. Rows that are added hold kNoToken,
/// sequences no rows.
void append_tokens(StepInputs& inputs, const data::TokenIds& ids, const data::Sequences& sequences,
                   Device device);

/// Adds a number for each row of the tokens added last, and `rest` for the rows that pad them: i64 [rows].
void append_labels(StepInputs& inputs, const data::TokenIds& labels, int64_t rest);

/// What append_tokens() added, from the tensor and the constant of these numbers on.
nn::Tokens tokens_of(const StepInputs& inputs, size_t tensor, size_t constant);

}  // namespace heed::train
