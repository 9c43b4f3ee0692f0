#include "apps/common/text_server.h"

#include <algorithm>
#include <cstdio>

#include "apps/common/program.h"
#include "apps/common/text.h"

namespace heed::apps {
namespace {

constexpr int kBad = 400, kTooLarge = 413;

}  // namespace

void declare_text_server(OptionTable& table, JsonServerOptions& http, int64_t& gather, TextLimits& limits) {
  constexpr int64_t kMany = 1 << 20;
  table.group("Server");
  table.text("host", http.host, "Address to listen on; 0.0.0.0: every one of this machine").not_saved();
  table.integer("port", http.port, "Port to listen on; 0: one that is free", {0, 65535});
  table.integer("connections", http.connections, "Connections served at once; others wait", {1, 4096});
  table.integer("gather", gather, "Milliseconds that a text waits for others to be computed with", {0, 1000});
  table.integer("max-text", limits.max_text, "Characters of a text, at most", {1, kMany});
  table.integer("max-texts", limits.max_texts, "Texts of a request, at most", {1, kMany});
  table.integer("max-body", http.max_body, "Bytes of a request, at most", {1, int64_t{1} << 30});
  table.integer("max-waiting", limits.max_waiting, "Texts of all requests that wait, at most", {1, kMany});
}

void expect_keys(const Json& request, std::initializer_list<std::string_view> keys) {
  if (!request.is_object())
    throw HttpError(kBad, concat("a request is an object: {\"", *keys.begin(), "\": …}"));
  for (const auto& item : request.items())
    if (std::ranges::find(keys, item.key()) == keys.end())
      throw HttpError(kBad, concat("\"", item.key(), "\" means nothing here"));
}

void take_integer(const Json& request, const char* key, int64_t low, int64_t high, int64_t& value) {
  const auto found = request.find(key);
  if (found == request.end()) return;
  if (!found->is_number_integer() || *found < low || *found > high)
    throw HttpError(kBad, concat("\"", key, "\" must be a whole number from ", low, " to ", high));
  value = found->get<int64_t>();
}

std::vector<std::string> take_texts(const Json& request, const char* key, const TextLimits& limits) {
  const auto found = request.find(key);
  const bool many = found != request.end() && found->is_array();
  const bool good = found != request.end() &&
                    (many ? !found->empty() && std::all_of(found->begin(), found->end(),
                                                           [](const Json& text) { return text.is_string(); })
                          : found->is_string());
  if (!good) throw HttpError(kBad, concat("\"", key, "\" must be a text or a list of texts"));
  auto texts =
      many ? found->get<std::vector<std::string>>() : std::vector<std::string>{found->get<std::string>()};
  if (std::ssize(texts) > limits.max_texts)
    throw HttpError(kTooLarge,
                    concat(texts.size(), " texts; at most ", limits.max_texts, " are taken in a request"));
  if (std::ssize(texts) > limits.max_waiting)
    throw HttpError(kTooLarge, concat(texts.size(), " texts; at most ", limits.max_waiting, " can wait"));
  for (size_t i = 0; i < texts.size(); ++i) {
    int64_t length = 0;
    for_each_character(texts[i], [&](std::string_view) { ++length; });
    if (length > limits.max_text)
      throw HttpError(kTooLarge, concat("text ", i + 1, " has ", length, " characters; at most ",
                                        limits.max_text, " are taken"));
  }
  return texts;
}

void serve_until_stopped(JsonServer& server, bool json) {
  if (json)
    JsonLines().write({{"url", server.url()}, {"port", server.port()}});
  else
    std::printf("listening on %s; Ctrl-C ends it\n", printable(server.url()).c_str());
  std::fflush(stdout);
  server.run(stop_requested);
}

}  // namespace heed::apps
