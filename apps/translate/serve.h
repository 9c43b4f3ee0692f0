// Texts over HTTP: what a request may say, and its answer.
#pragma once

#include <string>
#include <vector>

#include <heed/nn/text/text_alignment.h>
#include <heed/nn/text/text_model.h>

#include "apps/common/serve/batch_queue.h"
#include "apps/common/text_server.h"

namespace heed::apps {

/// The page that `serve` shows: apps/translate/serve.html.
extern const char* const kServePage;

struct ServeLimits : TextLimits {
  int64_t max_beam = 16;        // hypotheses of a text
  int64_t batch_tokens = 4096;  // source tokens computed together
};

/// What is asked of each text.
struct TextQuestion {
  int64_t beam = 5, best = 1, max_length = 0;
  double length_penalty = 0;
  bool alignment = false;

  friend bool operator==(const TextQuestion&, const TextQuestion&) = default;
};

/// The model behind POST /api/run: answers requests of several threads, texts of different requests together.
class TextService {
 public:
  /// `defaults` holds where a request says nothing.
  TextService(nn::TextModel model, const TextQuestion& defaults, const ServeLimits& limits,
              std::chrono::microseconds gather);

  /// {"text": TEXT or [TEXT, …], "beam", "best", "max_length", "length_penalty", "alignment"} →
  /// {"results": [{"source", "outputs": [{"text", "score", "finished", "alignment"}, …]}, …]}.
  /// HttpError 400 for what is no such object, 413 beyond a limit; QueueFull, QueueClosed.
  Json run(const Json& request);
  /// What GET /api/info answers, but for the model's name.
  Json info() const;
  /// Takes no more requests, and returns when all have their results.
  void close() { queue_.close(); }

 private:
  struct Request {
    std::string text;
    TextQuestion question;
  };
  struct Result {
    std::vector<nn::TextOutput> outputs;
    std::vector<nn::TextAlignment> alignments;  // of each, where asked for
  };

  TextQuestion parse_question(const Json& request) const;
  std::vector<std::string> parse_texts(const Json& request) const;
  std::vector<Result> compute(const std::vector<Request>& requests) const;

  const nn::TextModel model_;
  const TextQuestion defaults_;
  const ServeLimits limits_;
  BatchQueue<Request, Result> queue_;
};

/// {"source": words, "output": words, "weights": [[…], …], "source_of": [the word attended to most, …]}.
Json to_json(const nn::TextAlignment& alignment);

}  // namespace heed::apps
