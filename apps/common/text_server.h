// What servers of texts share: limits, their options, and what a request may say.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/options/options.h"
#include "apps/common/serve/json_server.h"

namespace heed::apps {

struct TextLimits {
  int64_t max_text = 2000;    // code points of a text
  int64_t max_texts = 64;     // texts of a request
  int64_t max_waiting = 256;  // texts of all requests that are not computed yet
};

/// The group "Server". `gather`: milliseconds that a text waits for others.
void declare_text_server(OptionTable& table, JsonServerOptions& http, int64_t& gather, TextLimits& limits);

/// HttpError 400 unless the request is an object of these keys alone.
void expect_keys(const Json& request, std::initializer_list<std::string_view> keys);
/// A whole number of the request from low to high, where it has one; HttpError 400.
void take_integer(const Json& request, const char* key, int64_t low, int64_t high, int64_t& value);
/// The text of a key, or its list of texts. HttpError 400 where it is none, 413 beyond a limit.
std::vector<std::string> take_texts(const Json& request, const char* key, const TextLimits& limits);

/// Says where the server listens, and serves until a signal comes.
void serve_until_stopped(JsonServer& server, bool json);

}  // namespace heed::apps
