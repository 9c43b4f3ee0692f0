#include "apps/embed/serve.h"

#include <filesystem>

#include "apps/embed/commands.h"

namespace heed::apps {

SearchService::SearchService(const Searcher& searcher, int64_t top, int64_t max_top, const TextLimits& limits,
                             std::chrono::microseconds gather)
    : searcher_(searcher),
      top_(top),
      max_top_(max_top),
      limits_(limits),
      queue_({.max_waiting = static_cast<size_t>(limits.max_waiting), .gather = gather},
             [this](const std::vector<Request>& requests) { return compute(requests); }) {}

std::vector<Json> SearchService::compute(const std::vector<Request>& requests) const {
  std::vector<std::string> texts;
  for (const Request& request : requests) texts.push_back(request.text);
  const Tensor vectors = searcher_.encode(texts);
  std::vector<Json> results;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const Tensor vector = vectors.slice(0, row, row + 1);
    Json result = Json::array();
    if (requests[i].top > 0)
      for (const Answer& found : searcher_.find(vector, requests[i].top)) result.push_back(to_json(found));
    else
      for (int64_t c = 0; c < vector.size(1); ++c) result.push_back(vector.data<float>()[c]);
    results.push_back(std::move(result));
  }
  return results;
}

std::vector<Json> SearchService::answer(const std::vector<std::string>& texts, int64_t top) {
  std::vector<Request> requests;
  for (const std::string& text : texts) requests.push_back({text, top});
  std::vector<Json> answers;
  for (auto& waiting : queue_.submit(std::move(requests))) answers.push_back(waiting.get());
  return answers;
}

Json SearchService::search(const Json& request) {
  expect_keys(request, {"question", "top"});
  int64_t top = top_;
  take_integer(request, "top", 1, max_top_, top);
  const std::vector<std::string> questions = take_texts(request, "question", limits_);
  std::vector<Json> answers = answer(questions, top);
  Json results = Json::array();
  for (size_t i = 0; i < questions.size(); ++i)
    results.push_back({{"question", questions[i]}, {"found", std::move(answers[i])}});
  return {{"results", std::move(results)}};
}

Json SearchService::encode(const Json& request) {
  expect_keys(request, {"text"});
  return {{"embeddings", answer(take_texts(request, "text", limits_), 0)}};
}

Json SearchService::info() const {
  return {{"width", searcher_.encoder().width()},
          {"max_tokens", searcher_.encoder().max_tokens()},
          {"paragraphs", searcher_.paragraphs()},
          {"files", searcher_.files()},
          {"defaults", {{"top", top_}}},
          {"limits",
           {{"text", limits_.max_text},
            {"texts", limits_.max_texts},
            {"top", max_top_},
            {"waiting", limits_.max_waiting}}}};
}

void serve(const ServeSettings& s) {
  HEED_CHECK(s.top <= s.max_top, ConfigError, "--top ", s.top, " is more than --max-top ", s.max_top);
  HEED_CHECK(s.words.size() <= 1, ConfigError, "serve takes a folder alone; questions come over HTTP");
  JsonServer server(s.http);
  Searcher searcher(s);
  searcher.bring_up_to_date();
  SearchService service(searcher, s.top, s.max_top, s.limits, std::chrono::milliseconds(s.gather));
  const auto name = [](const std::filesystem::path& path) {
    const auto whole = std::filesystem::weakly_canonical(path);
    return whole.filename().string();
  };
  server.page("/", kSearchPage);
  server.get("/healthz", [] { return Json{{"status", "ok"}}; });
  server.get("/api/info", [&] {
    Json info{{"model", name(s.model)}, {"folder", name(searcher.folder())}};
    info.update(service.info());
    return info;
  });
  server.post("/api/search", [&](const Json& request) { return service.search(request); });
  server.post("/api/encode", [&](const Json& request) { return service.encode(request); });
  serve_until_stopped(server, s.json);
  service.close();
}

}  // namespace heed::apps
