// What sequence-to-sequence programs share between data and model: batches as tensors, and evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heed/data/loader.h>
#include <heed/nn/decode.h>
#include <heed/nn/transformer.h>

namespace heed::apps {

/// A batch on the model's device.
struct Seq2SeqBatch {
  nn::Tokens source, target;
  Tensor labels;  // i64 [target rows]; kPad where there is none
};

Seq2SeqBatch to_tensors(const data::PairBatch& batch, Device device);

struct Evaluation {
  double loss = 0;               // mean over target tokens
  double token_accuracy = 0;     // teacher-forced
  double sequence_accuracy = 0;  // whole outputs of greedy decoding that are right
  int64_t pairs = 0;
};

struct EvaluationOptions {
  int64_t batch_size = 128;
  data::Marks marks = {};
  int64_t max_decode_length = 0;  // 0: two more than the longest target there is
};

/// Runs the model over all pairs, in evaluation mode.
Evaluation evaluate(nn::Transformer& model, const data::PairDataset& dataset,
                    const EvaluationOptions& options = {});

/// Greedy outputs of the given pairs' sources; without end marks each is cut to its target's length.
std::vector<nn::Hypothesis> predict(nn::Transformer& model, const std::vector<data::Pair>& pairs,
                                    data::Marks marks, const nn::DecodeOptions& options);

/// Without end marks nothing in an output says where it ends: cuts each to its target's length.
void cut_to_targets(std::vector<nn::Hypothesis>& outputs, std::span<const data::Pair> pairs,
                    data::Marks marks);

/// Whether an output is the pair's target, ended where it has to.
bool is_right(const nn::Hypothesis& output, const data::Pair& pair, data::Marks marks);

/// "3 4 5"
std::string to_text(std::span<const int64_t> symbols);

}  // namespace heed::apps
