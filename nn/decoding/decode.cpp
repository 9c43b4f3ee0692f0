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

// What a step says of the tokens that may follow each row.
class NextTokens {
 public:
  /// Of log probabilities f32 [rows, vocabulary] the `count` highest of each row, of equals those of smaller
  /// tokens, and all of them where `any` token may be asked for.
  NextTokens(const Tensor& log_probability, int64_t count, bool any)
      : count_(static_cast<size_t>(std::min(count, log_probability.size(1)))) {
    if (count_ > 0) {
      const auto [scores, tokens] = topk(log_probability, static_cast<int64_t>(count_));
      scores_ = scores.to_vector<float>();
      tokens_ = tokens.to_vector<int64_t>();
    }
    if (any) all_ = log_probability.to(kCpu);
  }

  float score(size_t row, int64_t token) const {
    return all_.data<float>()[static_cast<int64_t>(row) * all_.size(1) + token];
  }
  /// Best first; of a row with NaN the first is NaN.
  std::span<const float> scores(size_t row) const { return std::span(scores_).subspan(row * count_, count_); }
  std::span<const int64_t> tokens(size_t row) const {
    return std::span(tokens_).subspan(row * count_, count_);
  }

 private:
  size_t count_;
  std::vector<float> scores_;
  std::vector<int64_t> tokens_;
  Tensor all_;
};

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
      if (options_.sample) draw(logits, step);
      // One more than are looked at, for the end mark may have to be passed over.
      const int64_t highest = options_.sample ? 0 : static_cast<int64_t>(looked_at()) + 1;
      advance(NextTokens(log_softmax(logits), highest, options_.sample || !options_.prefixes.empty()), step);
    }
    return std::move(results_);
  }

 private:
  // What has finished needs no row any more; but a draw's numbers follow from its row.
  bool has_row(const Hypothesis& h) const { return options_.sample || !h.finished; }

  // Continuations of each source that are told of, kept or not.
  size_t looked_at() const {
    const auto width = static_cast<size_t>(options_.beam);
    return options_.on_choice ? 2 * width : width;
  }

  void advance(const NextTokens& next_tokens, int64_t step) {
    parents_.clear();
    last_.clear();
    size_t going_on = 0, row = 0;  // beams, at the front; rows of those before
    for (Beam& beam : beams_) {
      rows_.clear();
      for (const Hypothesis& h : beam.hypotheses) rows_.push_back(has_row(h) ? row++ : 0);
      Beam next{beam.source, {}};
      const size_t rows_before = last_.size();
      for (const Continuation& c : best(beam, next_tokens, step)) {
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
      if (step + 1 == max_length(next.source) || settled(next)) {
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

  int64_t max_length(int64_t source) const {
    if (options_.max_lengths.empty()) return options_.max_length;
    return std::min(options_.max_length, options_.max_lengths[static_cast<size_t>(source)]);
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
      return h.finished || penalised(h.score, static_cast<size_t>(max_length(beam.source)),
                                     options_.length_penalty) <= least;
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
  std::span<const Continuation> best(const Beam& beam, const NextTokens& next_tokens, int64_t step) {
    const auto width = static_cast<size_t>(options_.beam);
    const double alpha = options_.length_penalty;
    candidates_.clear();
    for (size_t h = 0; h < beam.hypotheses.size(); ++h) {
      const Hypothesis& hypothesis = beam.hypotheses[h];
      if (hypothesis.finished) {
        candidates_.push_back(
            {penalised(hypothesis.score, counted_length(hypothesis), alpha), hypothesis.score, h, -1});
        continue;
      }
      const auto propose = [&](int64_t token, float log_probability) {
        // Each log probability holds the sum over its row: of a row with NaN all are NaN.
        HEED_CHECK(!std::isnan(log_probability), NumericError, "decode: the logits of source ", beam.source,
                   " at step ", step, " are NaN or infinite; is a weight of the model?");
        const double score = hypothesis.score + log_probability;
        candidates_.push_back({penalised(score, hypothesis.tokens.size() + 1, alpha), score, h, token});
      };
      const size_t row = rows_[h];
      if (const std::optional<int64_t> only = chosen(beam.source, row, step)) {
        propose(*only, next_tokens.score(row, *only));
        continue;
      }
      const int64_t excluded = step < options_.min_length ? options_.end : -1;
      const std::span<const int64_t> tokens = next_tokens.tokens(row);
      size_t left = looked_at();
      for (size_t i = 0; i < tokens.size() && left > 0; ++i) {
        if (tokens[i] == excluded) continue;
        propose(tokens[i], next_tokens.scores(row)[i]);
        --left;
      }
    }
    if (options_.sample) return candidates_;  // one of each hypothesis
    const size_t kept = std::min(candidates_.size(), width),
                 sorted = std::min(candidates_.size(), looked_at());
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
  HEED_CHECK(max_lengths.empty() || std::ssize(max_lengths) == sources, ConfigError,
             "decode: ", max_lengths.size(), " max_lengths for ", sources, " sources");
  for (const int64_t length : max_lengths)
    HEED_CHECK(length > 0, ConfigError, "decode: max_lengths must be positive, got ", length);
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
