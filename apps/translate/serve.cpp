#include "apps/translate/serve.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/translate/commands.h"

namespace heed::apps {
namespace {

constexpr int kBad = 400, kTooLarge = 413;

double rounded(float weight) { return std::round(1e4 * static_cast<double>(weight)) / 1e4; }

Json side(const data::Tokenizer& tokenizer) {
  return {{"tokenizer", data::name(tokenizer.options().kind)}, {"vocab", tokenizer.vocab()}};
}

/// "demo + hour" for their folders.
std::string name_of(const std::vector<std::string>& folders) {
  std::string name;
  for (const std::string& folder : folders)
    name += concat(name.empty() ? "" : " + ",
                   std::filesystem::absolute(folder).lexically_normal().filename().string());
  return name;
}

}  // namespace

Json to_json(const nn::TextAlignment& a) {
  Json weights = Json::array(), source_of = Json::array();
  if (!a.weights.empty())
    for (int64_t o = 0; o < std::ssize(a.output); ++o) {
      Json row = Json::array();
      for (int64_t s = 0; s < std::ssize(a.source); ++s) row.push_back(rounded(a.at(o, s)));
      weights.push_back(std::move(row));
      source_of.push_back(a.source_of(o));
    }
  return {{"source", a.source}, {"output", a.output}, {"weights", weights}, {"source_of", source_of}};
}

TextService::TextService(nn::TextModel model, const TextQuestion& defaults, const ServeLimits& limits,
                         std::chrono::microseconds gather)
    : model_(std::move(model)),
      defaults_(defaults),
      limits_(limits),
      queue_(
          {.max_waiting = static_cast<size_t>(limits.max_waiting), .gather = gather},
          [this](const std::vector<Request>& requests) { return compute(requests); },
          [](const Request& a, const Request& b) { return a.question == b.question; }) {}

TextQuestion TextService::parse_question(const Json& request) const {
  TextQuestion q = defaults_;
  take_integer(request, "best", 1, limits_.max_beam, q.best);
  q.beam = std::max(q.beam, q.best);
  take_integer(request, "beam", q.best, limits_.max_beam, q.beam);
  take_integer(request, "max_length", 1, model_.max_output(), q.max_length);
  if (const auto found = request.find("length_penalty"); found != request.end()) {
    constexpr double kMax = 100;
    if (!found->is_number() || *found < 0 || *found > kMax)
      throw HttpError(kBad, concat("\"length_penalty\" must be a number from 0 to ", kMax));
    q.length_penalty = found->get<double>();
  }
  if (const auto found = request.find("alignment"); found != request.end()) {
    if (!found->is_boolean()) throw HttpError(kBad, "\"alignment\" must be true or false");
    q.alignment = found->get<bool>();
  }
  return q;
}

std::vector<std::string> TextService::parse_texts(const Json& request) const {
  const std::vector<std::string> texts = take_texts(request, "text", limits_);
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t tokens = std::ssize(model_.source().encode(texts[i]));
    if (tokens > model_.max_input())
      throw HttpError(kTooLarge, concat("text ", i + 1, " has ", tokens, " tokens; at most ",
                                        model_.max_input(), " are taken"));
  }
  return texts;
}

std::vector<TextService::Result> TextService::compute(const std::vector<Request>& requests) const {
  const TextQuestion& q = requests.front().question;
  std::vector<std::string> texts;
  for (const Request& request : requests) texts.push_back(request.text);
  auto outputs = model_.run(texts, {.beam = q.beam,
                                    .best = q.best,
                                    .length_penalty = q.length_penalty,
                                    .max_length = q.max_length,
                                    .batch_tokens = limits_.batch_tokens});
  std::vector<Result> results(requests.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (q.alignment) {
      std::vector<std::vector<int64_t>> tokens;
      for (const nn::TextOutput& output : outputs[i]) tokens.push_back(output.tokens);
      results[i].alignments = nn::align(model_, std::vector<std::string>(tokens.size(), texts[i]), tokens);
    }
    results[i].outputs = std::move(outputs[i]);
  }
  return results;
}

Json TextService::run(const Json& request) {
  expect_keys(request, {"text", "beam", "best", "max_length", "length_penalty", "alignment"});
  const TextQuestion question = parse_question(request);
  const std::vector<std::string> texts = parse_texts(request);
  std::vector<Request> requests;
  for (const std::string& text : texts) requests.push_back({text, question});
  auto waiting = queue_.submit(std::move(requests));
  Json results = Json::array();
  for (size_t i = 0; i < texts.size(); ++i) {
    const Result result = waiting[i].get();
    Json outputs = Json::array();
    for (size_t n = 0; n < result.outputs.size(); ++n) {
      const nn::TextOutput& o = result.outputs[n];
      outputs.push_back({{"text", o.text}, {"score", o.score}, {"finished", o.finished}});
      if (question.alignment) outputs.back()["alignment"] = to_json(result.alignments[n]);
    }
    results.push_back({{"source", texts[i]}, {"outputs", std::move(outputs)}});
  }
  return {{"results", std::move(results)}};
}

Json TextService::info() const {
  int64_t parameters = 0;
  for (const auto& model : model_.models()) parameters += model->parameters().numel();
  return {{"parameters", parameters},
          {"source", side(model_.source())},
          {"target", side(model_.target())},
          {"defaults",
           {{"beam", defaults_.beam},
            {"best", defaults_.best},
            {"length_penalty", defaults_.length_penalty},
            {"max_length", defaults_.max_length > 0 ? defaults_.max_length : model_.max_output()}}},
          {"limits",
           {{"text", limits_.max_text},
            {"texts", limits_.max_texts},
            {"beam", limits_.max_beam},
            {"max_length", model_.max_output()},
            {"waiting", limits_.max_waiting}}}};
}

void serve(const ServeSettings& s) {
  HEED_CHECK(s.beam <= s.limits.max_beam, ConfigError, "--beam ", s.beam, " is more than --max-beam ",
             s.limits.max_beam);
  ServeLimits limits = s.limits;
  limits.batch_tokens = s.batch_tokens;
  JsonServer server(s.http);
  TextService service(load_model(s),
                      {.beam = s.beam, .max_length = s.max_length, .length_penalty = s.length_penalty},
                      limits, std::chrono::milliseconds(s.gather));
  const std::string name = name_of(s.models);
  server.page("/", kServePage);
  server.get("/healthz", [] { return Json{{"status", "ok"}}; });
  server.get("/api/info", [&] {
    Json info{{"model", name}};
    info.update(service.info());
    return info;
  });
  server.post("/api/run", [&](const Json& request) { return service.run(request); });
  serve_until_stopped(server, s.json);
  service.close();
}

}  // namespace heed::apps
