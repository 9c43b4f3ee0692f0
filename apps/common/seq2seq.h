// What sequence-to-sequence programs make of a trained model: its evaluation and outputs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <heed/data/pair_loader.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/models/seq2seq.h>
#include <heed/train/seq2seq.h>

namespace heed::apps {

/// A pair and what the model made of it.
struct Prediction {
  data::Pair pair;
  nn::Hypothesis output;
  bool right = false;
};

struct Evaluation {
  double loss = 0;               // mean over target tokens
  double token_accuracy = 0;     // teacher-forced
  double sequence_accuracy = 0;  // whole outputs of greedy decoding that are right; 0 without decoding
  int64_t pairs = 0;
  std::vector<Prediction> failures;  // the first of them, as many as asked for
};

struct EvaluationOptions {
  int64_t batch_size = 128;
  bool decode = true;             // false: loss and token accuracy only
  int64_t max_pairs = INT64_MAX;  // the first so many
  data::Marks marks = {};
  int64_t max_decode_length = 0;                     // 0: two more than the longest target there is
  int64_t keep_failures = 0;                         // at most so many
  std::function<void(int64_t pairs)> on_batch = {};  // after each
};

/// Runs the model over the pairs, in evaluation mode. NumericError where it answers with NaN; Stopped after a
/// signal.
Evaluation evaluate(nn::Seq2SeqModel& model, const data::PairDataset& dataset,
                    const EvaluationOptions& options = {});

/// The search for these pairs' outputs. Without end marks nothing in an output says where it ends: then its
/// length does, that of the pair's target, and the end mark's id is a symbol as all others.
nn::DecodeOptions search_for(std::span<const data::Pair> pairs, data::Marks marks, nn::DecodeOptions options);

/// Outputs beside what they should be.
std::vector<Prediction> grade(const std::vector<nn::Hypothesis>& outputs, std::span<const data::Pair> pairs,
                              data::Marks marks);

/// Greedy outputs for the given pairs' sources.
std::vector<Prediction> predict(nn::Seq2SeqModel& model, const std::vector<data::Pair>& pairs,
                                data::Marks marks, const nn::DecodeOptions& options);

}  // namespace heed::apps
