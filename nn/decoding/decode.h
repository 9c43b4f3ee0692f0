// Finding the output of a sequence-to-sequence model: greedy and beam search, and sampling.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <heed/core/sampling.h>
#include <heed/nn/models/seq2seq.h>

namespace heed::nn {

/// One way to go on in a search: a hypothesis with a token more, or as it is, where it has finished.
struct Continuation {
  double rank;    // score with length penalty, by which the search chooses
  double score;   // log probability of all its tokens
  size_t parent;  // the hypothesis, by its place among those kept before
  int64_t token;  // -1: finished before
};

struct DecodeOptions {
  int64_t start = 1;                   // the first decoder input
  int64_t end = 2;                     // ends an output; -1: only max_length does
  int64_t max_length = 64;             // tokens of an output, the end mark included
  int64_t min_length = 0;              // tokens before the end mark may come
  int64_t beam = 1;                    // hypotheses followed for each source
  int64_t best = 0;                    // of which so many are wanted: see beam_search(); 0: all
  double length_penalty = 0;           // scores are divided by ((5 + length) / 6)^this (arXiv 1609.08144, 7)
  std::function<void()> on_step = {};  // called before each token; what it throws ends the search
  /// What the outputs of each source begin with, without marks; empty: nothing is forced.
  std::vector<std::vector<int64_t>> prefixes = {};
  /// Tokens of each source's outputs, at most, where that is fewer than max_length; empty: the same for all.
  std::vector<int64_t> max_lengths = {};
  /// Called after each token for each source, with the continuations that are kept, best first, and the next
  /// best, as many at most, that are not.
  std::function<void(int64_t source, std::span<const Continuation> kept,
                     std::span<const Continuation> pruned)>
      on_choice = {};
  /// Instead of a search: `beam` outputs of each source, each drawn on its own.
  std::optional<SampleOptions> sample = {};

  /// ConfigError where a number cannot be.
  void check(int64_t vocabulary, int64_t sources) const;
};

struct Hypothesis {
  std::vector<int64_t> tokens;  // without start and end marks
  double score = 0;             // log probability, divided by the length penalty
  bool finished = false;        // ended by the end mark; else by its length
};

/// The most likely token at each step, for all sources at once; one hypothesis each. Dropout is off and
/// nothing is recorded. NumericError where the model answers with NaN.
std::vector<Hypothesis> greedy_search(Seq2SeqModel& model, const Tokens& source,
                                      const DecodeOptions& options = {});

/// The `beam` best hypotheses of each source, best first. At each step the best continuations are kept, and a
/// finished hypothesis competes as it is: it stays finished. With a beam of 1 this is greedy_search. Of
/// `best` hypotheses only those are returned, the same as of all, and the search of a source ends when no
/// other can become better than they are. With `sample` tokens are drawn; the scores are those of the model
/// all the same. NumericError where the model answers with NaN.
std::vector<std::vector<Hypothesis>> beam_search(Seq2SeqModel& model, const Tokens& source,
                                                 const DecodeOptions& options = {});

}  // namespace heed::nn
