// Search and vectors over HTTP: what a request may say, and its answer.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "apps/common/serve/batch_queue.h"
#include "apps/common/text_server.h"
#include "apps/embed/searcher.h"

namespace heed::apps {

/// The page that `serve` shows: apps/embed/serve.html.
extern const char* const kSearchPage;

/// A folder's index and its encoder behind two endpoints: answers requests of several threads, whose texts
/// are encoded together.
class SearchService {
 public:
  /// The searcher must outlive it. A request that says nothing gets `top` paragraphs, and never more than
  /// max_top.
  SearchService(const Searcher& searcher, int64_t top, int64_t max_top, const TextLimits& limits,
                std::chrono::microseconds gather);

  /// {"question": TEXT or [TEXT, …], "top"} → {"results": [{"question", "found": [{"score", "file", "line",
  /// "first_line", "last_line", "text"}, …]}, …]}. HttpError 400 for what is no such object, 413 beyond a
  /// limit; QueueFull, QueueClosed.
  Json search(const Json& request);
  /// {"text": TEXT or [TEXT, …]} → {"embeddings": [[…], …]}, each of length 1. Errors as of search().
  Json encode(const Json& request);
  /// What GET /api/info answers, but for the names of model and folder.
  Json info() const;
  /// Takes no more requests, and returns when all have their results.
  void close() { queue_.close(); }

 private:
  struct Request {
    std::string text;
    int64_t top = 0;  // 0: the vector itself
  };
  std::vector<Json> compute(const std::vector<Request>& requests) const;
  std::vector<Json> answer(const std::vector<std::string>& texts, int64_t top);

  const Searcher& searcher_;
  const int64_t top_, max_top_;
  const TextLimits limits_;
  BatchQueue<Request, Json> queue_;
};

}  // namespace heed::apps
