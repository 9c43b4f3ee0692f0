#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/decoding/decode.h>
#include <heed/nn/detail/evaluation.h>

namespace heed::nn {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

struct Beam {
  int64_t source;
  std::vector<Hypothesis> hypotheses;  // their scores are plain sums of log probabilities
};

double penalised(double score, size_t length, double alpha) {
  return alpha == 0 ? score : score / std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha);
}

// Of continuations, best first, those that do not go on from a copy of the first hypothesis.
std::span<const Continuation> possible(std::span<const Continuation> sorted) {
  const auto end =
      std::find_if(sorted.begin(), sorted.end(), [](const Continuation& c) { return c.rank == kImpossible; });
  return sorted.first(static_cast<size_t>(end - sorted.begin()));
}

// Length as the penalty counts it: the end mark is a token too.
size_t counted_length(const Hypothesis& h) { return h.tokens.size() + (h.finished ? 1 : 0); }

// The tokens with the `count` highest scores of a row, best first, of equals the smaller ones; but for one.
void highest(const float* row, int64_t vocabulary, size_t count, int64_t excluded,
             std::vector<std::pair<float, int64_t>>& found) {
  found.clear();
  for (int64_t token = 0; token < vocabulary; ++token) {
    const bool full = found.size() == count;
    if ((full && !(row[token] > found.back().first)) || token == excluded) continue;
    if (full) found.pop_back();
    const auto place = std::upper_bound(found.begin(), found.end(), row[token],
                                        [](float score, const auto& other) { return score > other.first; });
    found.emplace(place, row[token], token);
  }
}

class Search {
 public:
  Search(const Seq2SeqModel& model, const Tokens& source, const DecodeOptions& options)
      : options_(options),
        wanted_(static_cast<size_t>(options.best == 0 || options.sample ? options.beam : options.best)),
        decoder_(model.start(source, options.beam)) {
    for (int64_t i = 0; i < source.segments.count(); ++i) {
      beams_.push_back({i, std::vector<Hypothesis>(static_cast<size_t>(options.beam))});
      if (options.sample) continue;
      // The hypotheses begin equal: only the first may go on, or the beam would hold copies.
      for (size_t h = 1; h < beams_.back().hypotheses.size(); ++h)
        beams_.back().hypotheses[h].score = kImpossible;
    }
    results_.resize(beams_.size());
    last_.assign(static_cast<size_t>(decoder_->rows()), options.start);
    device_ = source.ids.device();
  }

  std::vector<std::vector<Hypothesis>> run() {
    for (int64_t step = 0; step < options_.max_length && !beams_.empty(); ++step) {
      if (options_.on_step) options_.on_step();
      const Tensor logits =
          decoder_->step(tensor(last_, {static_cast<int64_t>(last_.size())}, device_)).to(DType::f32);
      const Tensor scores = log_softmax(logits);
      if (options_.sample) draw(logits, step);
      advance(scores.to_vector<float>(), scores.size(1), step);
    }
    for (Beam& beam : beams_) finish(beam);
    return std::move(results_);
  }

 private:
  // What has finished needs no row any more; but a draw's numbers follow from its row.
  bool has_row(const Hypothesis& h) const { return options_.sample || !h.finished; }

  void advance(const std::vector<float>& log_probability, int64_t vocabulary, int64_t step) {
    parents_.clear();
    last_.clear();
    size_t going_on = 0, row = 0;  // beams, at the front; rows of those before
    for (Beam& beam : beams_) {
      rows_.clear();
      for (const Hypothesis& h : beam.hypotheses) rows_.push_back(has_row(h) ? row++ : 0);
      Beam next{beam.source, {}};
      const size_t rows_before = last_.size();
      for (const Continuation& c : best(beam, log_probability.data(), vocabulary, step)) {
        Hypothesis& h = next.hypotheses.emplace_back(beam.hypotheses[c.parent]);
        h.score = c.score;
        if (c.token == options_.end)
          h.finished = true;
        else if (c.token >= 0)
          h.tokens.push_back(c.token);
        if (!has_row(h)) continue;
        parents_.push_back(static_cast<int64_t>(rows_[c.parent]));
        last_.push_back(std::max<int64_t>(c.token, 0));
      }
      if (settled(next)) {
        finish(next);
        parents_.resize(rows_before);
        last_.resize(rows_before);
      } else {
        beams_[going_on++] = std::move(next);
      }
    }
    beams_.erase(beams_.begin() + static_cast<int64_t>(going_on), beams_.end());
    if (!beams_.empty()) decoder_->select(parents_);
  }

  // Whether the hypotheses that are wanted are known: they have finished, and what goes on, which only loses
  // probability, stays behind them at any length.
  bool settled(const Beam& beam) const {
    const std::span<const Hypothesis> all = beam.hypotheses, wanted = all.first(wanted_);
    const auto finished = [](const Hypothesis& h) { return h.finished; };
    if (!std::all_of(wanted.begin(), wanted.end(), finished)) return false;
    const Hypothesis& last = wanted.back();
    const double least = penalised(last.score, counted_length(last), options_.length_penalty);
    return std::all_of(all.begin(), all.end(), [&](const Hypothesis& h) {
      return h.finished ||
             penalised(h.score, static_cast<size_t>(options_.max_length), options_.length_penalty) <= least;
    });
  }

  // A token for each hypothesis.
  void draw(const Tensor& logits, int64_t step) {
    Tensor allowed = logits;
    if (step < options_.min_length && options_.end >= 0) {
      std::vector<float> bias(static_cast<size_t>(logits.size(1)), 0.0f);
      bias[static_cast<size_t>(options_.end)] = -std::numeric_limits<float>::infinity();
      allowed = logits + tensor(bias, {logits.size(1)}, device_);
    }
    drawn_ = sample(allowed, *options_.sample).to_vector<int64_t>();
  }

  // The token that a hypothesis must go on with, where it is forced or drawn.
  std::optional<int64_t> chosen(int64_t source, size_t row, int64_t step) const {
    if (!options_.prefixes.empty()) {
      const std::vector<int64_t>& prefix = options_.prefixes[static_cast<size_t>(source)];
      if (step < std::ssize(prefix)) return prefix[static_cast<size_t>(step)];
    }
    if (options_.sample) return drawn_[row];
    return std::nullopt;
  }

  // The options_.beam best continuations, best first; of equals the earlier hypothesis and the smaller token.
  std::span<const Continuation> best(const Beam& beam, const float* log_probability, int64_t vocabulary,
                                     int64_t step) {
    const auto width = static_cast<size_t>(options_.beam), looked_at = options_.on_choice ? 2 * width : width;
    const int64_t excluded = step < options_.min_length ? options_.end : -1;
    candidates_.clear();
    for (size_t h = 0; h < beam.hypotheses.size(); ++h) {
      const Hypothesis& hypothesis = beam.hypotheses[h];
      const double alpha = options_.length_penalty;
      if (hypothesis.finished) {
        candidates_.push_back(
            {penalised(hypothesis.score, counted_length(hypothesis), alpha), hypothesis.score, h, -1});
        continue;
      }
      const float* const row = log_probability + rows_[h] * static_cast<size_t>(vocabulary);
      // Each log probability holds the sum over its row: of a row with NaN all are NaN.
      HEED_CHECK(!std::isnan(row[0]), NumericError, "decode: the logits of source ", beam.source, " at step ",
                 step, " are NaN or infinite; is a weight of the model?");
      const auto propose = [&](int64_t token) {
        const double score = hypothesis.score + row[token];
        candidates_.push_back({penalised(score, hypothesis.tokens.size() + 1, alpha), score, h, token});
      };
      if (const std::optional<int64_t> only = chosen(beam.source, rows_[h], step)) {
        propose(*only);
        continue;
      }
      highest(row, vocabulary, looked_at, excluded, highest_);
      for (const auto& entry : highest_) propose(entry.second);
    }
    if (options_.sample) return candidates_;  // one of each hypothesis
    const size_t kept = std::min(candidates_.size(), width), sorted = std::min(candidates_.size(), looked_at);
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(sorted),
                      candidates_.end(), [](const Continuation& a, const Continuation& b) {
                        if (a.rank != b.rank) return a.rank > b.rank;
                        return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
                      });
    const std::span<const Continuation> best = candidates_;
    if (options_.on_choice)
      options_.on_choice(beam.source, best.first(kept), possible(best.subspan(kept, sorted - kept)));
    return best.first(kept);
  }

  void finish(Beam& beam) {
    for (Hypothesis& h : beam.hypotheses)
      h.score = penalised(h.score, counted_length(h), options_.length_penalty);
    std::stable_sort(beam.hypotheses.begin(), beam.hypotheses.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    beam.hypotheses.resize(wanted_);
    results_[static_cast<size_t>(beam.source)] = std::move(beam.hypotheses);
  }

  DecodeOptions options_;
  size_t wanted_;  // hypotheses of each source
  std::unique_ptr<StepDecoder> decoder_;
  Device device_;
  std::vector<Beam> beams_;       // of the sources that are not done
  std::vector<int64_t> last_;     // the newest token of each hypothesis,
  std::vector<int64_t> parents_;  // and which of the step before it continues
  std::vector<size_t> rows_;      // of each hypothesis of a beam that has one
  std::vector<int64_t> drawn_;    // of each row, with `sample`
  std::vector<std::pair<float, int64_t>> highest_;
  std::vector<Continuation> candidates_;
  std::vector<std::vector<Hypothesis>> results_;
};

}  // namespace

void DecodeOptions::check(int64_t vocabulary, int64_t sources) const {
  HEED_CHECK(max_length > 0, ConfigError, "decode: max_length must be positive, got ", max_length);
  HEED_CHECK(min_length >= 0 && min_length < max_length, ConfigError, "decode: min_length ", min_length,
             " must be in [0, max_length = ", max_length, ")");
  HEED_CHECK(beam > 0, ConfigError, "decode: beam must be positive, got ", beam);
  HEED_CHECK(best >= 0 && best <= beam, ConfigError, "decode: ", best, " hypotheses are wanted of a beam of ",
             beam);
  HEED_CHECK(sample || beam <= vocabulary, ConfigError, "decode: a beam of ", beam,
             " is wider than the vocabulary of ", vocabulary);
  HEED_CHECK(std::isfinite(length_penalty) && length_penalty >= 0, ConfigError,
             "decode: length_penalty must be finite and not negative, got ", length_penalty);
  HEED_CHECK(start >= 0 && start < vocabulary, ConfigError, "decode: the mark ", start,
             " is not in the vocabulary of ", vocabulary);
  HEED_CHECK(end >= -1 && end < vocabulary, ConfigError, "decode: the mark ", end,
             " is not in the vocabulary of ", vocabulary);
  HEED_CHECK(prefixes.empty() || std::ssize(prefixes) == sources, ConfigError, "decode: ", prefixes.size(),
             " prefixes for ", sources, " sources");
  for (const std::vector<int64_t>& prefix : prefixes) {
    HEED_CHECK(std::ssize(prefix) < max_length, ConfigError, "decode: a prefix of ", prefix.size(),
               " tokens leaves nothing of max_length ", max_length);
    for (const int64_t token : prefix)
      HEED_CHECK(token >= 0 && token < vocabulary && token != end, ConfigError, "decode: the prefix token ",
                 token, " is the end mark or not in the vocabulary of ", vocabulary);
  }
}

std::vector<std::vector<Hypothesis>> beam_search(Seq2SeqModel& model, const Tokens& source,
                                                 const DecodeOptions& options) {
  options.check(model.target_vocabulary(), source.segments.count());
  const Evaluation evaluation(model);
  return Search(model, source, options).run();
}

std::vector<Hypothesis> greedy_search(Seq2SeqModel& model, const Tokens& source,
                                      const DecodeOptions& options) {
  DecodeOptions one = options;
  one.beam = 1;
  one.best = 0;
  std::vector<Hypothesis> result;
  for (std::vector<Hypothesis>& hypotheses : beam_search(model, source, one))
    result.push_back(std::move(hypotheses.front()));
  return result;
}

}  // namespace heed::nn
